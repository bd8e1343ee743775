"""Models of PyTorch, from file to answer; `make test KIND=frameworks` has it installed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zmqtriton_extras.backends import configuration
from zmqtriton_extras.backends.tests import summing
from zmqtriton_extras.backends.tests.served import Served
from zmqtriton_extras.backends.tests.system import torch_models
from zmqtriton_stub.api.errors import TritonModelException, describe

torch = pytest.importorskip("torch")

#: PyTorch says so of all of TorchScript, the one by 2.13 and the other by 2.15.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:.*torch.jit:{kind}Warning")
    for kind in ("Deprecation", "Future")
]

Write = Callable[..., Path]


def io(inputs: str, outputs: str, kind: str = "TYPE_FP32", batch: int = 8, more: str = "") -> str:
    """A configuration with these names of tensors; optional ones end in `?`."""

    def listed(section: str, names: str) -> str:
        entries = [
            f'{{ name: "{name.rstrip("?")}" data_type: {kind} dims: [ -1 ]'
            + (" optional: true }" if name.endswith("?") else " }")
            for name in names.split()
        ]
        return f"{section} [ {', '.join(entries)} ]\n"

    tensors = listed("input", inputs) + listed("output", outputs)
    return f'backend: "pytorch"\n{tensors}max_batch_size: {batch}\n{more}\n'


def parameters(**values: str) -> str:
    return "".join(
        f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}\n'
        for name, value in values.items()
    )


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str, str], Served]:
    """Serves a class of torch_models as TorchScript, with this configuration."""

    def serve(name: str, text: str) -> Served:
        torch_models.write_script(tmp_path / name / "1" / "model.pt", name)
        return Served(tmp_path / name, text)

    return serve


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def row(*values: float, kind: Any = np.float32) -> Any:
    return np.array([values], dtype=kind)


X, Y = row(7, 8), row(1, 1)


@pytest.mark.row("K01")
@pytest.mark.parametrize(
    ("text", "inputs", "expected"),
    [
        (
            io("B__1 C__0", "L__0 S__1"),
            {"C__0": X, "B__1": Y},
            {"L__0": [[6, 7]], "S__1": [[7, 8]]},
        ),
        (
            io("B__1 C__0", "S__1 L__0"),
            {"C__0": X, "B__1": Y},
            {"L__0": [[6, 7]], "S__1": [[7, 8]]},
        ),
        (io("y x z?", "a b"), {"x": X, "y": Y}, {"a": [[6, 7]], "b": [[7, 8]]}),
        (io("y x z?", "a b"), {"x": X, "y": Y, "z": Y}, {"a": [[6, 7]], "b": [[1, 1]]}),
        (io("first second", "one"), {"second": Y, "first": X}, {"one": [[6, 7]]}),
    ],
)
def test_names_with_an_index_arguments_or_order_tell_the_place(
    script: Any, text: str, inputs: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert expected == script("Less", text).ask(**inputs)


@pytest.mark.row("K01")
def test_dictionaries_lists_and_strings(script: Any) -> None:
    named, several = script("Named", io("Y X", "MORE LESS")), script("Summed", io("a b c", "all"))
    words = script("Words", io("words", "upper", "TYPE_STRING", 0))

    assert named.ask(X=X, Y=Y) == {"MORE": [[8, 9]], "LESS": [[6, 7]]}
    assert several.ask(a=X, b=Y, c=Y) == {"all": [[9, 10]]}
    texts = np.array([b"a", "ä".encode()], dtype=np.object_)
    assert {"upper": [b"A", "Ä".encode()]} == words.ask(words=texts)


@pytest.mark.parametrize("text", [summing.CONFIG, summing.BY_PLACE])
def test_controls_and_states_of_sequences(script: Any, text: str) -> None:
    assert summing.answers(script("Summing", f'backend: "pytorch" {text}')) == summing.EXPECTED


def test_requests_are_joined_and_their_rows_given_back(script: Any) -> None:
    doubled = script("Doubled", io("x", "y"))

    outputs = doubled.ask_all({"x": X}, {"x": np.ones((2, 2), np.float32)}, {"x": row(1, 2, 3)})

    assert outputs == [{"y": [[14, 16]]}, {"y": [[2, 2], [2, 2]]}, {"y": [[2, 4, 6]]}]


def test_bfloat16_comes_and_goes(script: Any) -> None:
    doubled = script("Doubled", io("x", "y", "TYPE_BF16"))

    output = doubled.ask(x=torch.tensor([[0.5, 1.5]], dtype=torch.bfloat16))["y"]

    assert torch.from_dlpack(output).tolist() == [[1, 3]]


def test_parameters_set_how_it_is_executed(script: Any) -> None:
    set_to = {"INFERENCE_MODE": "true", "DISABLE_OPTIMIZED_EXECUTION": "true"}
    switched = parameters(**set_to, INTRA_OP_THREAD_COUNT="1", ENABLE_JIT_EXECUTOR="true")
    seen: list[tuple[bool, bool]] = []
    served = script("Doubled", io("x", "y", more=switched))
    call = served.model._module.call

    def look(x: Any) -> Any:
        seen.append((torch.is_inference_mode_enabled(), torch.is_grad_enabled()))
        return call(x)

    served.model._module = served.model._module._replace(call=look)
    assert served.ask(x=X) == {"y": [[14, 16]]}
    assert (seen, torch.get_num_threads()) == ([(True, False)], 1)


@pytest.mark.row("K02")
def test_an_exported_program_tells_its_tensors(tmp_path: Path) -> None:
    torch_models.write_program(tmp_path / "m" / "1" / "model.pt2")

    served = Served(tmp_path / "m", "")

    assert served.ask(x=X, y=Y) == {"OUTPUT__0": [[6, 7]], "OUTPUT__1": [[7, 8]]}
    config = served.config
    assert (config["platform"], config["max_batch_size"]) == ("torch_aoti", 4)
    assert [(e["name"], e["dims"]) for e in config["input"]] == [("x", [2]), ("y", [2])]
    with pytest.raises(TritonModelException, match="expects datatype TYPE_FP64 for input 'x'"):
        Served(tmp_path / "m", io("x y", "a b", "TYPE_FP64"))


def test_a_class_has_its_weights_beside_it(tmp_path: Path) -> None:
    code = write(tmp_path / "m" / "1" / "model.py", torch_models.SCALE)
    assert Served(tmp_path / "m", io("x", "y")).ask(x=X) == {"y": [[7, 8]]}

    torch.save({"factor": torch.tensor([5.0])}, code.with_suffix(".pt"))
    assert Served(tmp_path / "m", io("x", "y")).ask(x=X) == {"y": [[35, 40]]}

    torch.save({"other": torch.tensor([5.0])}, code.with_suffix(".pt"))
    with pytest.raises(TritonModelException, match=r"torch: cannot load .*\n?.*Missing key"):
        Served(tmp_path / "m", io("x", "y"))


def test_threads_that_wait_do_not_spin_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    configuration.limit_spinning()
    assert os.environ["GOMP_SPINCOUNT"] == "1000"

    monkeypatch.delenv("GOMP_SPINCOUNT")
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    configuration.limit_spinning()
    assert "GOMP_SPINCOUNT" not in os.environ


def test_what_a_class_raises_has_its_own_lines(tmp_path: Path) -> None:
    broken = torch_models.SCALE.replace("torch.ones(1)", "torch.ones(unknown)")
    code = write(tmp_path / "m" / "1" / "model.py", broken)

    with pytest.raises(NameError) as error:
        Served(tmp_path / "m", io("x", "y"))

    text = describe(error.value)
    assert f"NameError: name 'unknown' is not defined\n\nAt:\n  {code}(8): __init__\n" in text
    assert "backends/pytorch" not in text


def test_an_error_of_the_model_is_the_answer(script: Any) -> None:
    raising = script("Raising", io("x", "y"))
    with pytest.raises(ValueError, match="mat1 and mat2 shapes cannot be multiplied"):
        raising.ask(x=X)

    short = script("Doubled", io("x", "y z"))
    with pytest.raises(ValueError, match="The number of outputs of the model is 1, expected 2"):
        short.ask(x=X)


@pytest.mark.row("K01")
def test_what_cannot_be_served_has_a_reason(tmp_path: Path, script: Any) -> None:
    def refused(directory: Path, text: str) -> str:
        with pytest.raises(TritonModelException) as error:
            Served(directory, text)
        return str(error.value)

    with pytest.raises(TritonModelException, match="must specify 'input' and 'output'"):
        script("Doubled", 'backend: "pytorch"')
    path = tmp_path / "Doubled" / "1" / "model.pt"
    path.write_bytes(path.read_bytes()[:500])
    no_script = "is no TorchScript; save a module by torch.jit.script(module).save()"
    assert no_script in refused(tmp_path / "Doubled", io("x", "y"))
    torch.save({"factor": torch.ones(1)}, path)
    assert no_script in refused(tmp_path / "Doubled", io("x", "y"))
    write(tmp_path / "empty" / "1" / "model.py", "import torch\n")
    assert "Cannot find a subclass of torch.nn.Module in " in refused(
        tmp_path / "empty", io("x", "y")
    )
    threads = parameters(INTRA_OP_THREAD_COUNT="many")
    assert "must be an integer of at least 0, got 'many'" in refused(
        tmp_path / "Doubled", io("x", "y", more=threads)
    )
