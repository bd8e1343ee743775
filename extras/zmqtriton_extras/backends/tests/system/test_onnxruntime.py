"""ONNX files on a real server: completed, batched, in ensembles, reloaded, and broken."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from tests.support import onnx_models
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton_extras.backends.tests.system.serving import DESPITE_FAILURES

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=("string_upper",),
        options=(
            *DESPITE_FAILURES,
            "--log-verbose=1",
        ),
        frontends=("grpc",),
    ),
]
IO = """
input [ { name: "X" data_type: TYPE_FP32 dims: [ 3 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 3 ] } ]
"""
SETTINGS = """
optimization { graph { level: -1 } }
parameters { key: "intra_op_thread_count" value { string_value: "1" } }
parameters { key: "execution_mode" value { string_value: "1" } }
parameters { key: "session.disable_prepacking" value { string_value: "1" } }
model_warmup { name: "w" batch_size: 2
  inputs { key: "X" value { data_type: TYPE_FP32 dims: [ 3 ] random_data: true } } }
"""
ACCELERATED = """
optimization { execution_accelerators { cpu_execution_accelerator : [ { name : "%s" } ] } }
"""


def own_environment(directory: Path) -> Path:
    """Another Python, whose packages are the tests' own."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    [packages] = directory.glob("lib/python*/site-packages")
    (packages / "of_the_tests.pth").write_text(sysconfig.get_path("purelib"))
    return directory


def prepare(server: Server) -> None:
    root = server.repository

    def configure(model: str, text: str) -> None:
        (root / model).mkdir(exist_ok=True)
        (root / model / "config.pbtxt").write_text(text)

    for name in ("bare", "configured", "wrong_type", "wrong_name", "own_environment"):
        onnx_models.scaling(root / name / "1" / "model.onnx")
    for name in ("wrong_accelerator", "no_openvino", "wrong_batch", "elsewhere"):
        onnx_models.scaling(root / name / "1" / "model.onnx", shape=(2, 3))
    onnx_models.scaling(root / "directory" / "1" / "model.onnx" / "model.onnx", shape=(2, 3))
    onnx_models.joining_words(root / "words" / "1" / "model.onnx")
    onnx_models.adding_default(root / "defaults" / "1" / "model.onnx")
    onnx_models.scaling(root / "rows" / "1" / "model.onnx", shape=("N",))
    configure("configured", 'platform: "onnxruntime_onnx" max_batch_size: 2' + IO + SETTINGS)
    # What cannot be served.
    whole = onnx_models.scaling(root / "truncated" / "1" / "model.onnx")
    whole.write_bytes(whole.read_bytes()[:60])
    onnx_models.scaling(root / "opset" / "1" / "model.onnx", opset=900)
    onnx_models.with_a_sequence(root / "sequence" / "1" / "model.onnx")
    onnx_models.with_maps(root / "maps" / "1" / "model.onnx")
    (root / "missing" / "1").mkdir(parents=True)
    configure("missing", 'backend: "onnxruntime"')
    configure(
        "wrong_type",
        'backend: "onnxruntime"'
        + IO.replace("FP32 dims: [ 3 ] } ]\nout", "FP64 dims: [ -1, 3 ] } ]\nout").replace(
            "dims: [ 3 ]", "dims: [ -1, 3 ]"
        ),
    )
    configure("wrong_name", 'backend: "onnxruntime" max_batch_size: 1' + IO.replace('"Y"', '"V"'))
    configure("wrong_batch", 'backend: "onnxruntime" max_batch_size: 1')
    configure("wrong_accelerator", 'backend: "onnxruntime"' + ACCELERATED % "nonsense")
    configure("no_openvino", 'backend: "onnxruntime"' + ACCELERATED % "openvino")
    executable = 'parameters { key: "PYTHON_EXECUTABLE" value { string_value: "%s" } }'
    path = 'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "%s" } }'
    configure("own_environment", path % own_environment(server.directory / "environment"))
    configure("elsewhere", executable % getattr(sys, "_base_executable", ""))


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Any]:
    with triton.InferenceServerClient(server.url.removeprefix("http://"), concurrency=4) as client:
        yield client


def ask(client: Any, model: str, outputs: tuple[str, ...] = (), **inputs: Any) -> dict[str, Any]:
    """Return the outputs as lists; `client` may be one for HTTP or for gRPC."""
    module = triton if isinstance(client, triton.InferenceServerClient) else grpc_client
    tensors = []
    for name, array in inputs.items():
        tensors.append(module.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype)))
        tensors[-1].set_data_from_numpy(array)
    requested = [module.InferRequestedOutput(name) for name in outputs] or None
    answer = client.infer(model, tensors, outputs=requested)
    document = answer.get_response()
    entries = document["outputs"] if isinstance(document, dict) else document.outputs
    names = [entry["name"] if isinstance(entry, dict) else entry.name for entry in entries]
    return {name: answer.as_numpy(name).tolist() for name in names}


def floats(*rows: Sequence[float]) -> Any:
    return np.array(rows, dtype=np.float32)


def words(*rows: list[bytes]) -> Any:
    return np.array(rows, dtype=np.object_)


def reason(client: Any, model: str) -> str:
    (entry,) = [m for m in client.get_model_repository_index() if m["name"] == model]
    return str(entry.get("reason", ""))


@pytest.mark.row("K03")
def test_a_file_alone_is_a_model_with_its_tensors_and_batches(server: Server, client: Any) -> None:
    array = floats([1, 2, 3], [4, 5, 6])
    expected = {"Y": [[2, 4, 6], [8, 10, 12]], "Z": [[-1, -2, -3], [-4, -5, -6]]}

    assert expected == ask(client, "bare", X=array)
    with grpc_client.InferenceServerClient(server.grpc_address) as other:
        assert expected == ask(other, "bare", X=array)
    config = client.get_model_config("bare")
    assert (config["backend"], config["platform"]) == ("onnxruntime", "onnxruntime_onnx")
    assert (
        config["max_batch_size"],
        config["dynamic_batching"]["preferred_batch_size"],
    ) == (4, [4])
    assert [
        (group["name"], group["kind"], group["count"]) for group in config["instance_group"]
    ] == [("bare", "KIND_CPU", 2)]
    assert [(entry["name"], entry["dims"]) for entry in config["input"]] == [("X", [3])]


def test_the_file_may_be_a_directory_and_its_shapes_fixed(client: Any) -> None:
    assert ask(client, "directory", ("Y",), X=floats([1, 2, 3], [0, 0, 0])) == {
        "Y": [[2, 4, 6], [0, 0, 0]]
    }
    config = client.get_model_config("directory")
    assert (config["max_batch_size"], config["input"][0]["dims"]) == (0, [2, 3])
    assert "dynamic_batching" not in config


def test_strings_come_and_go(client: Any) -> None:
    both = ask(client, "words", LEFT=words([b"a", b"\xc3\xa4"]), RIGHT=words([b"b", b""]))

    assert {"BOTH": [[b"ab", "ä".encode()]]} == both
    with pytest.raises(InferenceServerException, match="'LEFT' has a string that is not UTF-8"):
        ask(client, "words", LEFT=words([b"\xff"]), RIGHT=words([b""]))


def test_an_input_with_a_default_may_be_left_out(client: Any) -> None:
    one, five = np.array([1, 2], dtype=np.int64), np.array([5], dtype=np.int64)

    assert ask(client, "defaults", IN=one) == {"OUT": [11, 12]}
    assert ask(client, "defaults", IN=one, BIAS=five) == {"OUT": [6, 7]}


def test_a_tensor_of_nothing_but_the_batch_has_one_element_for_each(client: Any) -> None:
    assert ask(client, "rows", ("Y",), X=floats([1], [2])) == {"Y": [[2], [4]]}
    tensor = client.get_model_config("rows")["input"][0]
    assert (tensor["dims"], tensor["reshape"]) == ([1], {"shape": []})


@pytest.mark.row("K03")
def test_settings_reach_the_session_and_samples_warm_it_up(server: Server, client: Any) -> None:
    assert ask(client, "configured", X=floats([1, 0, 0])) == {"Y": [[2, 0, 0]]}
    eventually(
        lambda: "session of configured_0: ['CPUExecutionProvider'], 1 threads" in server.log_text(),
        60,
    )


def test_its_environment_may_be_its_own(server: Server, client: Any) -> None:
    assert ask(client, "own_environment", ("Y",), X=floats([1, 0, 0])) == {"Y": [[2, 0, 0]]}

    [pid, *_] = server.stub_pids("own_environment")
    assert str(server.directory / "environment" / "bin") in psutil.Process(pid).cmdline()[0]


@pytest.mark.row("K03")
@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("truncated", "onnxruntime: "),
        ("opset", "Opset 900"),
        ("sequence", "Unsupported ONNX Type 'seq(tensor(float))' for I/O 'S'"),
        ("maps", "for I/O 'P', expected 'ONNX_TYPE_TENSOR'. Convert a classifier of scikit-learn"),
        ("missing", "/missing/1/model.onnx' for model 'missing'"),
        (
            "wrong_type",
            "configuration expects datatype TYPE_FP64 for input 'X', model provides TYPE_FP32",
        ),
        ("wrong_name", "unexpected inference output 'V', allowed outputs are: Y, Z"),
        (
            "wrong_batch",
            "autofill failed for model 'wrong_batch': model does not support batching while "
            "non-zero max_batch_size is specified",
        ),
        ("wrong_accelerator", "unknown Execution Accelerator 'nonsense' is requested"),
        ("no_openvino", "has no OpenVINOExecutionProvider, only "),
        ("elsewhere", "backend 'onnxruntime' needs the module 'onnxruntime', which "),
    ],
)
def test_what_cannot_be_served_has_a_reason(client: Any, model: str, text: str) -> None:
    text_of_reason = reason(client, model)

    assert text in text_of_reason
    assert "\nAt:" not in text_of_reason  # lines of ours
