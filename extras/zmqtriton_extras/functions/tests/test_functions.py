"""Functions in a model's directory: their configuration, their calls, their batches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zmqtriton_extras.functions.backend import api
from zmqtriton_floor.errors import ZmqTritonError

load_model = pytest.importorskip("zmqtriton_extras.authoring.testing").load_model


@contextmanager
def loaded(directory: Path, source: str, config: str = "", name: str = "caption") -> Iterator[Any]:
    """Load a function as `load_model` loads models; without config.pbtxt unless one is given."""
    version = directory / name / "1"
    version.mkdir(parents=True, exist_ok=True)
    (version / "model.py").write_text(source)
    if config:
        (version.parent / "config.pbtxt").write_text(config)
    with load_model(version.parent) as model:
        yield model


SCALARS = """
from zmqtriton import model

@model
def caption(text: str, words: int = 20, share: float = 0.5, loud: bool = False) -> str:
    text = " ".join(text.split()[:words])
    return f"{text.upper() if loud else text} {share}"
"""


def test_hints_are_the_configuration(tmp_path: Path) -> None:
    with loaded(tmp_path, SCALARS) as model:
        inputs = model.config["input"]
        assert "functions" == model.config["backend"]

    assert ["text", "words", "share", "loud"] == [each["name"] for each in inputs]
    assert ["TYPE_STRING", "TYPE_INT64", "TYPE_FP64", "TYPE_BOOL"] == [
        each["data_type"] for each in inputs
    ]
    assert [False, True, True, True] == [each.get("optional", False) for each in inputs]


def test_a_request_is_a_call(tmp_path: Path) -> None:
    with loaded(tmp_path, SCALARS) as model:
        outputs = model.infer({"text": np.array(["a b c"], object), "words": np.array([2])})

    assert [b"a b 0.5"] == outputs["output"].tolist()


def test_a_value_that_the_hint_does_not_allow_is_refused_with_its_place(tmp_path: Path) -> None:
    source = """
from typing import Literal
from zmqtriton import model

@model
def caption(style: Literal["short", "long"]) -> str:
    return style
"""
    with loaded(tmp_path, source) as model:
        assert [b"long"] == model.infer(style=np.array(["long"], object))["output"].tolist()
        with pytest.raises(ZmqTritonError) as caught:
            model.infer(style=np.array(["odd"], object))

    assert "style: expected one of 'short', 'long', got a text of 3 letters" == caught.value.text
    assert "InvalidArgument" == type(caught.value).__name__


KINDS = """
from typing import List, NamedTuple, Optional
import numpy as np
from zmqtriton import Array, model

class Answer(NamedTuple):
    total: float
    names: List[List[str]]
    rows: Array["INT32", -1, 2]
    nothing: Optional[int]

@model
def caption(
    values: List[int],
    grid: List[List[float]],
    data: bytes,
    plain: np.ndarray,
    shaped: Array["UINT8", -1, 2],
    limit: Optional[int],
) -> Answer:
    total = sum(values) + sum(map(sum, grid)) + len(data) + plain.sum()
    names = [["a", "é"], ["c", "d"]]
    return Answer(total, names, shaped.astype("int32"), limit)
"""


def test_lists_arrays_and_fields_are_tensors(tmp_path: Path) -> None:
    with loaded(tmp_path, KINDS) as model:
        inputs = {
            "values": np.array([1, 2]),
            "grid": np.array([[0.5, 1.0]]),
            "data": np.array([b"\xff\x00"], object),
            "plain": np.array([1, 2], np.float32),
            "shaped": np.array([[1, 2]], np.uint8),
        }
        outputs = model.infer(inputs)
        rows = {each["name"]: each["dims"] for each in model.config["output"]}
        limited = model.infer(limit=np.array([3]), **inputs)

    assert {
        "total": [1],
        "names": [-1, -1],
        "names.ragged": [1],
        "rows": [-1, 2],
        "nothing": [1],
    } == {name: list(map(int, dims)) for name, dims in rows.items()}
    assert [9.5] == outputs["total"].tolist()
    assert [[b"a", "é".encode()], [b"c", b"d"]] == outputs["names"].tolist()
    assert [[1, 2]] == outputs["rows"].tolist()
    assert np.int32 == outputs["rows"].dtype
    assert "nothing" not in outputs
    assert [3] == limited["nothing"].tolist()


BATCH = """
from typing import List
from zmqtriton import Failed, model

calls = []

@model(batch=8, delay_ms=5, instances=2)
class Caption:
    def __init__(self) -> None:
        self.net = "net"

    def __call__(self, image: List[int], words: int = 20) -> List[str]:
        calls.append((image, words))
        if -1 in image:
            raise Failed(image.index(-1), "no picture")
        assert -2 not in image, "broken"
        answers = [f"{self.net} {each} {words} {len(image)}" for each in image]
        return [Failed(0, "odd") if e == -3 else a for e, a in zip(image, answers)]
"""


def test_a_chosen_delay_becomes_parameters(tmp_path: Path) -> None:
    chosen = BATCH.replace("delay_ms=5", 'delay="auto", target="p99 200 ms"')

    with loaded(tmp_path, chosen) as model:
        parameters = model.config["parameters"]

    assert "auto" == parameters["BATCH_DELAY"]["string_value"]
    assert "p99 200 ms" == parameters["BATCH_TARGET"]["string_value"]


@pytest.mark.parametrize(
    "settings", [{"delay": "5"}, {"delay": "auto", "delay_ms": 5}, {"target": "latency"}]
)
def test_a_delay_that_means_nothing_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r'delay must be "auto"|target needs delay'):
        api.model(batch=8, **settings)


def test_a_batch_has_the_entries_of_requests_with_equal_values(tmp_path: Path) -> None:
    with loaded(tmp_path, BATCH) as model:
        config = model.config
        responses = model.execute(
            [
                {"image": np.array([[1], [2]])},
                {"image": np.array([[3]]), "words": np.array([[7]])},
                {"image": np.array([[4]]), "words": np.array([[20]])},
                {"image": np.array([[5]])},
            ]
        )

    answers = [response.outputs["output"].tolist() for response in responses]
    assert [[b"net 1 20 3"], [b"net 2 20 3"]] == answers[0]
    assert [[b"net 3 7 1"]] == answers[1]
    assert [[b"net 4 20 1"]] == answers[2]
    assert [[b"net 5 20 3"]] == answers[3]
    assert 8 == config["max_batch_size"]
    assert 5000 == int(config["dynamic_batching"]["max_queue_delay_microseconds"])
    assert [2] == [group["count"] for group in config["instance_group"]]


BUDGET = """
from typing import List
from zmqtriton import model

def cost_of(text: str, words: int = 1) -> float:
    return float(text) * words

@model(batch=8, HEAD)
def caption(text: List[str], words: int = 1) -> List[str]:
    return [" ".join(text)] * len(text)
"""


def test_a_function_of_the_cost_divides_calls(tmp_path: Path) -> None:
    head = "cost=cost_of, budget=10"
    requests = [["4"], ["5", "1"], ["20"], ["-1"], ["x"], ["3"]]
    with loaded(tmp_path, BUDGET.replace("HEAD", head)) as model:
        parameters = model.config["parameters"]
        responses = model.execute(
            [{"text": np.array([[each] for each in texts], object)} for texts in requests]
        )

    answers = [each.outputs["output"].ravel().tolist() for each in responses if not each.error]
    assert [[b"4 5 1"], [b"4 5 1"] * 2, [b"20"], [b"3"]] == answers
    errors = [each.error.text for each in responses if each.error]
    assert "its cost is -1, which must be a number from 0 on" == errors[0]
    assert "ValueError: could not convert string to float: 'x'" == errors[1]
    assert "BATCH_COST" not in parameters


@pytest.mark.parametrize("head", ["lambda text, words: int(text) * words", "partial(by, each=1)"])
def test_a_cost_gets_the_defaults_of_the_function_and_may_have_its_own(
    tmp_path: Path, head: str
) -> None:
    own = "from functools import partial\n\ndef by(text, each, k=1): return int(text) * each * k\n"
    source = own + BUDGET.replace("HEAD", f"cost={head}, budget=10")
    with loaded(tmp_path, source) as model:
        responses = model.execute([{"text": np.array([[each]], object)} for each in "733"])

    answers = [each.error or each.outputs["output"].item() for each in responses]
    assert [b"7 3", b"7 3", b"3"] == answers


@pytest.mark.parametrize(
    ("hint", "head", "measures"),
    [
        ("str", "cost=len, budget=99", {"BATCH_COST": "bytes(text)", "MAX_BATCH_COST": "99"}),
        ("List[int]", "cost=len, budget=9", {"BATCH_COST": "elements(text)"}),
        ("List[int]", 'like="shape(text)"', {"BATCH_LIKE": "shape(text)"}),
        ("str", 'cost="padded(text)", budget=9', {"BATCH_COST": "padded(text)"}),
    ],
)
def test_measures_that_hints_have_are_the_brokers(
    tmp_path: Path, hint: str, head: str, measures: dict[str, str]
) -> None:
    source = BUDGET.replace("HEAD", head).replace("text: List[str]", f"text: List[{hint}]")
    with loaded(tmp_path, source) as model:
        parameters, (text, *_) = model.config["parameters"], model.config["input"]

    texts = {name: parameters[name]["string_value"] for name in measures}
    assert measures == texts
    assert (hint != "str") == bool(text.get("allow_ragged_batch"))


@pytest.mark.parametrize(
    ("head", "text"),
    [
        ("cost=lambda t: 1, budget=9", "cost has the parameter 't', which the function lacks"),
        ("cost=len, budget=9", "cost=len is for one list of texts, of lists or of arrays"),
        ("cost=len", "cost needs a budget, and budget a cost"),
        ("budget=9", "cost needs a budget, and budget a cost"),
        ("cost=7, budget=9", "cost must be len, a measure such as"),
        ("cost=max, budget=9", "cost must be len, a measure such as"),
        ("cost=lambda text, /: 1, budget=9", "a plain function that takes arguments by their"),
        ("cost=later, budget=9", "cost must be len, a measure such as"),
        ("cost=cost_of, budget=float('inf')", "budget a number from 0 on"),
        ("like=len", "like must be a measure, such as"),
    ],
)
def test_a_cost_that_cannot_be_taken_is_refused(tmp_path: Path, head: str, text: str) -> None:
    source = BUDGET.replace("HEAD", head).replace("text: List[str]", "text: List[int]")
    source = source.replace("@model", "async def later(text): return 1\n\n@model")
    with pytest.raises(Exception, match=text), loaded(tmp_path, source):
        pass


def test_a_failed_entry_fails_its_request_alone(tmp_path: Path) -> None:
    with loaded(tmp_path, BATCH) as model:
        responses = model.execute(
            [
                {"image": np.array([[1]])},
                {"image": np.array([[2], [-1]])},
                {"image": np.array([[3]])},
                {"image": np.array([[-3]])},
                {"image": np.array([[-2]]), "words": np.array([[1]])},
            ]
        )

    texts = ["" if each.error is None else each.error.text for each in responses]
    assert ["", "no picture", "", "odd", "AssertionError: broken"] == texts
    assert [[b"net 3 20 3"]] == responses[2].outputs["output"].tolist()


def test_a_document_that_is_no_text_fails_its_request_alone(tmp_path: Path) -> None:
    source = """
from typing import Dict, List
from zmqtriton import model

@model(batch=8)
def caption(rows: List[Dict[str, int]]) -> List[int]:
    return [row["a"] for row in rows]
"""
    documents = [b'{"a": 1}', b"\xff", b'{"a": 2}']
    with loaded(tmp_path, source) as model:
        responses = model.execute([{"rows": np.array([[each]], object)} for each in documents])

    assert "rows: expected JSON for Dict" in responses[1].error.text
    assert [1, 2] == [each.outputs["output"].item() for each in responses[::2]]


ARRAYS = """
import numpy as np
from zmqtriton import Array, model

@model(batch=4)
def caption(rows: Array["FP32", -1, -1], number: np.ndarray) -> Array["FP32", -1, -1]:
    assert rows.shape[0] == number.shape[0] and number.ndim == 1
    return rows * number[:, None]
"""


def test_arrays_of_a_batch_are_joined_and_divided(tmp_path: Path) -> None:
    with loaded(tmp_path, ARRAYS) as model:
        responses = model.execute(
            [
                {"rows": np.ones((2, 3), np.float32), "number": np.array([[1], [2]], np.float32)},
                {"rows": np.ones((1, 3), np.float32), "number": np.array([[3]], np.float32)},
                {"rows": np.ones((1, 1), np.float32), "number": np.array([[4]], np.float32)},
            ]
        )

    assert [[[1.0] * 3, [2.0] * 3], [[3.0] * 3], [[4.0]]] == [
        response.outputs["output"].tolist() for response in responses
    ]


NUMBERS = """
import numpy as np
from zmqtriton import Failed, model

@model(batch=4)
def caption(number: np.ndarray) -> np.ndarray:
    assert number.ndim == 1
    return [each if each > 0 else Failed(0, "too small") for each in number]
"""


def test_entries_of_an_array_of_numbers_have_no_dimension(tmp_path: Path) -> None:
    with loaded(tmp_path, NUMBERS) as model:
        requests = [{"number": np.array([[n]], np.float32)} for n in (1, -1, 2)]
        responses = model.execute(requests)

    assert ["", "too small", ""] == [each.error.text if each.error else "" for each in responses]
    assert [[2.0]] == responses[2].outputs["output"].tolist()


STREAM = """
from typing import {hint}
from zmqtriton import model

@model
{word}def caption(count: int) -> {hint}[int]:
    for number in range(count):
        if number == 3:
            raise ValueError("too many")
        yield number
"""


@pytest.mark.parametrize(("word", "hint"), [("", "Iterator"), ("async ", "AsyncIterator")])
def test_a_generator_is_a_stream(tmp_path: Path, word: str, hint: str) -> None:
    with loaded(tmp_path, STREAM.format(word=word, hint=hint)) as model:
        numbers = [each["output"].tolist() for each in model.stream(count=np.array([2]))]
        seen = []
        with pytest.raises(ZmqTritonError, match="ValueError: too many"):
            seen += [each["output"] for each in model.stream(count=np.array([5]))]
        assert model.config["model_transaction_policy"]["decoupled"]

    assert [[0], [1]] == numbers


ASYNC = """
import asyncio
from typing import List
from zmqtriton import model

meeting = None

@model
async def one(text: str) -> str:
    global meeting
    if meeting is None:
        meeting = asyncio.Event()
        await meeting.wait()
    meeting.set()
    return text

@model(batch=4)
async def both(text: List[str], side: int = 0) -> List[str]:
    await asyncio.sleep(0)
    return [f"{each}{side}" for each in text]
"""


def test_calls_of_an_async_function_overlap(tmp_path: Path) -> None:
    with loaded(tmp_path, ASYNC, name="one") as model:
        assert "64" == model.config["parameters"]["MAX_INFLIGHT"]["string_value"]
        responses = model.execute([{"text": np.array([each], object)} for each in "ab"])

    assert [[b"a"], [b"b"]] == [each.outputs["output"].tolist() for each in responses]


def test_a_file_has_several_models(tmp_path: Path) -> None:
    with loaded(tmp_path, ASYNC, name="both") as model:
        requests = [
            {"text": np.array([["a"]], object)},
            {"text": np.array([["b"]], object), "side": np.array([[1]])},
        ]
        responses = model.execute(requests)

    assert [[[b"a0"]], [[b"b1"]]] == [each.outputs["output"].tolist() for each in responses]
    text = "with the name 'third', its models are: both, one"
    with pytest.raises(Exception, match=text), loaded(tmp_path, ASYNC, name="third"):
        pass


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ('input { name: "text" data_type: TYPE_FP32 dims: 1 }', "expects datatype TYPE_FP32"),
        ('input { name: "other" data_type: TYPE_FP32 dims: 1 }', "has no input 'other'"),
        ("max_batch_size: 4", "max_batch_size 4"),
        ("model_transaction_policy { decoupled: true }", "decoupled"),
    ],
)
def test_a_configuration_beside_the_file_does_not_contradict_it(
    tmp_path: Path, config: str, text: str
) -> None:
    with pytest.raises(Exception, match=text), loaded(tmp_path, SCALARS, config):
        pass


def test_a_configuration_beside_the_file_adds_what_hints_cannot_say(tmp_path: Path) -> None:
    config = """
dynamic_batching { max_queue_delay_microseconds: 7 }
instance_group { count: 3 }
max_batch_size: 2
response_cache { enable: true }
"""
    with loaded(tmp_path, BATCH, config) as model:
        assert 7 == int(model.config["dynamic_batching"]["max_queue_delay_microseconds"])
        assert [3] == [group["count"] for group in model.config["instance_group"]]
        assert 2 == model.config["max_batch_size"]
        assert model.config["response_cache"]["enable"]


@pytest.mark.parametrize(
    ("head", "text"),
    [
        ("def caption(text) -> str", "parameter 'text' needs a hint"),
        ("def caption(text: str)", "the return value needs a hint"),
        ("def caption(text: Unknown) -> str", "name 'Unknown' is not defined"),
        ("def caption(text: Array['BF16']) -> str", "numpy has no arrays of 'BF16'"),
    ],
)
def test_a_hint_that_names_no_tensor_is_refused(tmp_path: Path, head: str, text: str) -> None:
    source = (
        "from __future__ import annotations\nfrom typing import Union\n"
        f"from zmqtriton import Array, model\n@model\n{head}: return ''\n"
    )
    with pytest.raises(Exception, match=text), loaded(tmp_path, source):
        pass


@pytest.mark.parametrize(
    ("hint", "value", "shown"),
    [
        ("int", "1.5", "expected int, got a number"),
        ("int", "True", "expected int, got a boolean"),
        ("int", "2**63", "expected int, got an integer of more than 64 bits"),
        ("bool", "1", "expected bool, got an integer"),
        ("str", "b'a'", "expected str, got bytes of 1 byte"),
        ("str", "chr(0xD800)", "expected str, got a text of 1 letter"),
        ("'list[int]'", "[1, 2.5]", "expected list of int, got"),
        ("'list[list[int]]'", "[[1], 2]", "expected list of list of int, got"),
        ("'list[str]'", "['a', 1]", "expected list of str, got an integer"),
        ("Array['INT8', 2]", "[1.5, 1.0]", "expected array of INT8 of shape .2., got array"),
        (
            "Array['INT8', 2]",
            "np.int8([1])",
            "expected .+ of shape .2., got array of int8 of shape .1.",
        ),
    ],
)
def test_an_answer_of_another_type_fails_its_request(
    tmp_path: Path, hint: str, value: str, shown: str
) -> None:
    source = f"""
import numpy as np
from zmqtriton import Array, model

@model
def caption(text: str) -> {hint}:
    return {value}
"""
    with loaded(tmp_path, source) as model, pytest.raises(ZmqTritonError) as caught:
        model.infer(text=np.array(["a"], object))

    assert caught.match(f"TypeError: output 'output': {shown}")


def test_what_is_marked_stays_what_it_is() -> None:
    from zmqtriton_extras.functions.backend.api import model

    def double(number: int) -> int:
        return 2 * number

    class TextScore:
        def __call__(self, text: str) -> float:
            return float(len(text))

    assert double is model(double)
    assert 4 == double(2)
    assert TextScore is model(batch=0)(TextScore)
    assert 3.0 == TextScore()("abc")
    with pytest.raises(ValueError, match="instances 1 or more"):
        model(instances=0)


SHARED = """
from dataclasses import dataclass
from zmqtriton import model

read = []

@dataclass
class Label:
    name: str

    def __post_init__(self):
        read.append(self.name)

@model(batch=4)
def caption(text: list[str], label: Label) -> list[int]:
    return [len(read)] * len(text)
"""


def test_an_argument_that_a_batch_shares_is_read_once(tmp_path: Path) -> None:
    label = np.array([[b'{"name": "a"}']], object)
    with loaded(tmp_path, SHARED) as model:
        answers = model.execute([{"text": np.array([[b"x"]], object), "label": label}] * 3)

    assert [[[1]]] * 3 == [each.outputs["output"].tolist() for each in answers]
