"""Functions of a script that Triton serves: the calls of PyTriton's guide, the server's life.

The clients are not ours: they speak KServe's protocol over HTTP.
"""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import textwrap
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.server import ROOT, free_ports, status_of
from tests.support.waiting import eventually
from zmqtriton_extras.pytriton.check.add_sub import add_sub_example
from zmqtriton_extras.pytriton.decorators import batch
from zmqtriton_extras.pytriton.exceptions import (
    PyTritonInvalidOperationError,
    PyTritonUnrecoverableError,
    PyTritonValidationError,
)
from zmqtriton_extras.pytriton.model_config import DynamicBatcher, ModelConfig, ModelWarmup, Tensor
from zmqtriton_extras.pytriton.model_config.common import WarmupInput
from zmqtriton_extras.pytriton.tests.system.served import FLOATS, Served, configured, ones
from zmqtriton_extras.pytriton.triton import Triton
from zmqtriton_floor.errors import ZmqTritonError

pytestmark = pytest.mark.system

# --------------------------------------------------------- PyTriton's guide


def test_a_function_of_a_batch_with_checked_outputs(served: Served) -> None:
    @batch
    def infer_fn(**inputs: np.ndarray) -> list[np.ndarray]:
        input1, input2 = inputs.values()
        lengths = [
            [len(b"".join(row)) for row in both] for both in zip(input1, input2, strict=True)
        ]
        return [np.array(lengths, np.float32)]

    served.triton.bind(
        model_name="ModelName",
        infer_func=infer_fn,
        inputs=[
            Tensor(shape=(1,), dtype=np.bytes_),
            Tensor(shape=(-1,), dtype=np.bytes_),
        ],
        outputs=[Tensor(shape=(-1,), dtype=np.float32)],
        config=ModelConfig(max_batch_size=8),
        strict=True,
    )

    one, several = np.array([[b"one"]], object), np.array([[b"more", b"of", b"it"]], object)
    assert served.ask("ModelName", INPUT_1=one, INPUT_2=several) == {"OUTPUT_1": [3, 8]}


def test_a_lambda_over_requests(served: Served) -> None:
    served.triton.bind(
        model_name="Identity",
        infer_func=lambda requests: [{"OUTPUT_1": request["INPUT_1"]} for request in requests],
        inputs=[Tensor(dtype=np.float32, shape=(1,))],
        outputs=[Tensor(dtype=np.float32, shape=(1,))],
        config=ModelConfig(max_batch_size=8),
    )

    assert served.ask("Identity", INPUT_1=ones(1, 1)) == {"OUTPUT_1": [1]}


@pytest.mark.row("J02")
def test_several_callables_are_several_instances(served: Served) -> None:
    both = threading.Barrier(2, timeout=30)

    class Linear:
        def __init__(self, factor: float) -> None:
            self._factor = factor

        @batch
        def __call__(self, **inputs: np.ndarray) -> list[np.ndarray]:
            (rows,) = inputs.values()
            both.wait()  # neither passes alone
            return [rows * self._factor]

    served.triton.bind(
        model_name="Linear",
        infer_func=[Linear(2), Linear(3)],
        inputs=[Tensor(dtype=np.float32, shape=(-1,))],
        outputs=[Tensor(dtype=np.float32, shape=(-1,))],
        config=ModelConfig(max_batch_size=1),
    )
    answers: list[float] = []
    askers = [
        threading.Thread(
            target=lambda: answers.extend(served.ask("Linear", INPUT_1=ones(1, 1))["OUTPUT_1"])
        )
        for _ in range(2)
    ]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(60)

    assert sorted(answers) == [2, 3]


def test_tensors_without_names_are_numbered(served: Served) -> None:
    served.triton.bind(
        "numbered",
        lambda requests: [
            {"OUTPUT_1": r["INPUT_1"], "OUTPUT_2": r["INPUT_1"].astype(np.int32)} for r in requests
        ],
        inputs=[Tensor(dtype=np.float32, shape=(-1,))],
        outputs=[Tensor(dtype=np.float32, shape=(-1,)), Tensor(dtype=np.int32, shape=(-1,))],
    )

    _, metadata = served.call("/v2/models/numbered")
    assert [row["name"] for row in metadata["inputs"]] == ["INPUT_1"]
    assert [(row["name"], row["datatype"]) for row in metadata["outputs"]] == [
        ("OUTPUT_1", "FP32"),
        ("OUTPUT_2", "INT32"),
    ]


def test_tensors_have_the_names_and_shapes_that_they_are_given(served: Served) -> None:
    served.triton.bind(
        "named",
        lambda requests: [{"class": np.zeros((1, 1000), np.int32)} for _ in requests],
        inputs=[Tensor(name="image", dtype=np.float32, shape=(224, 224, 3))],
        outputs=[Tensor(name="class", dtype=np.int32, shape=(1000,))],
    )

    _, config = served.call("/v2/models/named/config")
    assert (config["input"][0]["name"], config["input"][0]["dims"]) == ("image", [224, 224, 3])
    assert (config["output"][0]["name"], config["output"][0]["dims"]) == ("class", [1000])
    assert config["max_batch_size"] == 4


@pytest.mark.parametrize("dtype", [np.float32, np.float32().dtype, "float32"])
def test_types_are_written_in_three_ways(served: Served, dtype: Any) -> None:
    served.triton.bind(
        "typed",
        lambda requests: [{"tensor": r["tensor"]} for r in requests],
        inputs=[Tensor(name="tensor", shape=(-1,), dtype=dtype)],
        outputs=[Tensor(name="tensor", shape=(-1,), dtype=dtype)],
    )

    assert served.ask("typed", tensor=ones(1, 2)) == {"tensor": [1, 1]}


def test_objects_keep_the_bytes_that_numpy_would_drop(served: Served) -> None:
    seen: list[Any] = []

    def keep(requests: list[Any]) -> list[Any]:
        seen.extend(request["text"] for request in requests)
        return [{"text": np.array([[b"\xff\x00"]], object)} for _ in requests]

    text = Tensor(name="text", shape=(1,), dtype=object)
    served.triton.bind("bytes", keep, inputs=[text], outputs=[text])
    body = json.dumps(
        {
            "inputs": [
                {
                    "name": "text",
                    "datatype": "BYTES",
                    "shape": [1, 1],
                    "parameters": {"binary_data_size": 6},
                }
            ],
            "outputs": [{"name": "text", "parameters": {"binary_data": True}}],
        }
    ).encode()
    request = urllib.request.Request(
        f"{served.url}/v2/models/bytes/infer",
        body + b"\x02\0\0\0\xff\0",
        {"Inference-Header-Content-Length": str(len(body))},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        content = answer.read()

    assert content.endswith(b"\x02\0\0\0\xff\0")
    assert [array.tolist() for array in seen] == [[[b"\xff\x00"]]]


# ------------------------------------------------------------ the server's life


@pytest.mark.row("J09")
def test_what_a_callable_raises_is_told_with_its_traceback(served: Served) -> None:
    def fail(requests: list[Any]) -> Any:
        raise ValueError("no such word")

    served.triton.bind("fail", fail, inputs=[FLOATS], outputs=[FLOATS])

    error = served.ask("fail", INPUT_1=ones(1, 1))[""]
    assert "ValueError: no such word" in error
    assert "in fail" in error


@pytest.mark.row("J09")
@pytest.mark.parametrize("decoupled", [False, True])
def test_a_callable_that_exits_fails_its_request_alone(served: Served, *, decoupled: bool) -> None:
    def leave(requests: list[Any]) -> Any:
        if requests[0]["INPUT_1"][0, 0] < 0:
            sys.exit("enough")
        return [{"OUTPUT_1": request["INPUT_1"]} for request in requests]

    config = ModelConfig(decoupled=decoupled)
    served.triton.bind("leave", leave, inputs=[FLOATS], outputs=[FLOATS], config=config)

    assert "SystemExit: enough" in _outcomes(served, -1)
    assert _outcomes(served, 1) == "[[1.0]]"


def _outcomes(served: Served, factor: float) -> str:
    """The answers of the model `leave`, or the error."""
    assert served.triton._connection is not None
    model, texts = served.triton._connection.model("leave"), []
    try:
        for response in model.infer(inputs={"INPUT_1": factor * ones(1, 1)}):
            texts += [str(array.tolist()) for array in response.outputs.values()]
            texts += [str(response.error)] if response.error else []
    except ZmqTritonError as error:
        texts.append(error.text)
    return "".join(texts)


def test_outputs_are_checked_only_where_that_is_asked_for(served: Served) -> None:
    def wrong(requests: list[Any]) -> Any:
        return [{"OUTPUT_1": np.ones((1, 2), np.float64)} for _ in requests]

    served.triton.bind("lenient", wrong, inputs=[FLOATS], outputs=[FLOATS])
    served.triton.bind("strict", wrong, inputs=[FLOATS], outputs=[FLOATS], strict=True)

    assert served.ask("lenient", INPUT_1=ones(1, 1)) == {"OUTPUT_1": [1, 1]}
    assert "has invalid type" in served.ask("strict", INPUT_1=ones(1, 1))[""]


@pytest.mark.row("J02")
def test_a_name_that_serves_is_bound_anew(served: Served) -> None:
    for factor in (2, 3, 4):
        served.triton.bind(
            "anew",
            lambda requests, factor=factor: [{"OUTPUT_1": r["INPUT_1"] * factor} for r in requests],
            inputs=[FLOATS],
            outputs=[FLOATS],
        )
        assert served.ask("anew", INPUT_1=ones(1, 1)) == {"OUTPUT_1": [factor]}


def test_a_warm_up_is_executed_before_the_first_request(served: Served) -> None:
    shapes: list[Any] = []

    def note(requests: list[Any]) -> Any:
        shapes.extend(request["INPUT_1"].shape for request in requests)
        return [{"OUTPUT_1": request["INPUT_1"]} for request in requests]

    zeros = WarmupInput(dtype=np.float32, shape=(7,), zero_data=True)
    samples = [ModelWarmup(name="zeros", batch_size=2, inputs={"INPUT_1": zeros}, count=3)]
    served.triton.bind(
        "warm", note, inputs=[FLOATS], outputs=[FLOATS], config=ModelConfig(model_warmup=samples)
    )

    assert shapes == [(2, 7)] * 3
    _, config = served.call("/v2/models/warm/config")
    assert not config.get("model_warmup")


def test_batches_form_as_the_batcher_says(served: Served) -> None:
    sizes: list[int] = []

    def note(requests: list[Any]) -> Any:
        sizes.append(len(requests))
        return [{"OUTPUT_1": request["INPUT_1"]} for request in requests]

    served.triton.bind(
        "batched",
        note,
        inputs=[FLOATS],
        outputs=[FLOATS],
        config=ModelConfig(
            max_batch_size=8, batcher=DynamicBatcher(max_queue_delay_microseconds=2_000_000)
        ),
    )
    askers = [
        threading.Thread(target=served.ask, args=("batched",), kwargs={"INPUT_1": ones(1, 1)})
        for _ in range(8)
    ]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(60)

    assert sum(sizes) == 8
    assert max(sizes) > 1


@pytest.mark.row("J01", "J33")
def test_parameters_and_forwarded_headers_reach_the_callable(tmp_path: Path) -> None:
    seen: list[Any] = []

    def note(requests: list[Any]) -> Any:
        seen.extend(request.parameters for request in requests)
        return [{"OUTPUT_1": request["INPUT_1"]} for request in requests]

    config = configured(tmp_path, http_header_forward_pattern="(X-.*)")
    triton = Triton(config=config)
    triton.bind("noted", note, inputs=[FLOATS], outputs=[FLOATS])
    assert not triton.is_connected()
    triton.run()
    try:
        row = {"name": "INPUT_1", "datatype": "FP32", "shape": [1, 1], "data": [1]}
        request = urllib.request.Request(
            f"http://127.0.0.1:{config.http_port}/v2/models/noted/infer",
            json.dumps({"inputs": [row], "parameters": {"mine": 3}}).encode(),
            {"X-Who": "me"},
        )
        urllib.request.urlopen(request, timeout=60).close()
    finally:
        assert triton.stop()

    assert seen[0]["mine"] == 3
    assert {name.lower(): value for name, value in seen[0].items()}["x-who"] == "me"
    assert not triton.stop()
    assert not triton.is_alive()
    assert not triton.is_connected()


@pytest.mark.row("J09")
def test_an_unrecoverable_error_ends_the_server(tmp_path: Path) -> None:
    @batch
    def infer_fn(**inputs: np.ndarray) -> Any:
        raise PyTritonUnrecoverableError("Some unrecoverable error occurred")

    config = configured(tmp_path)
    assert config.http_port is not None
    triton = Triton(config=config)
    triton.bind("Fatal", infer_fn, inputs=[FLOATS], outputs=[FLOATS])
    serving = threading.Thread(target=triton.serve)
    serving.start()
    served = Served(triton, config.http_port)
    eventually(triton.is_alive, within_s=60)
    answer = served.ask("Fatal", INPUT_1=ones(1, 1))

    assert "Some unrecoverable error occurred" in answer[""]
    serving.join(60)
    assert not serving.is_alive()
    assert not triton.is_alive()


@pytest.mark.long(
    "extras/pytriton/system/test_triton.py::test_an_unrecoverable_error_ends_the_server"
)
def test_serving_ends_at_once_if_a_callable_has_given_up_before_it_began(tmp_path: Path) -> None:
    def infer_fn(requests: list[Any]) -> Any:
        raise PyTritonUnrecoverableError("too early")

    config = configured(tmp_path)
    assert config.http_port is not None
    triton = Triton(config=config)
    triton.bind("Fatal", infer_fn, inputs=[FLOATS], outputs=[FLOATS])
    triton.run()
    assert "too early" in Served(triton, config.http_port).ask("Fatal", INPUT_1=ones(1, 1))[""]
    eventually(lambda: not triton.is_connected(), within_s=60)
    serving = threading.Thread(target=triton.serve, daemon=True)
    serving.start()

    serving.join(60)
    is_over = not serving.is_alive()
    triton.stop()
    assert is_over
    assert 0 == status_of(f"http://127.0.0.1:{config.http_port}/v2/health/live")


@pytest.mark.row("J02")
def test_what_is_not_a_model_is_refused(served: Served) -> None:
    bind = served.triton.bind
    for name, text in (("", "cannot be empty"), ("a/b", "can only contain")):
        with pytest.raises(PyTritonValidationError, match=text):
            bind(name, lambda requests: requests, inputs=[FLOATS], outputs=[FLOATS])
    with pytest.raises(PyTritonValidationError, match="callable or sequence of callables"):
        bind("x", 7, inputs=[FLOATS], outputs=[FLOATS])  # type: ignore[arg-type]
    optional = Tensor(shape=(-1,), dtype=np.float32, optional=True)
    with pytest.raises(PyTritonValidationError, match="cannot be optional"):
        bind("x", lambda requests: requests, inputs=[FLOATS], outputs=[optional])
    with pytest.raises(PyTritonInvalidOperationError, match="no model `x` bound"):
        served.triton.unbind("x")


def test_a_model_that_cannot_be_served_leaves_no_server(tmp_path: Path) -> None:
    unknown = Tensor(name="IN", shape=(-2,), dtype=np.float32)
    triton = Triton(config=configured(tmp_path))
    triton.bind("m", lambda requests: requests, inputs=[unknown], outputs=[FLOATS])

    with pytest.raises(PyTritonInvalidOperationError, match="dimension must be integer"):
        triton.run()
    assert not triton.is_connected()
    # what it has begun is looked for after each test


@pytest.mark.row("J02")
def test_a_name_is_bound_once_before_the_server_runs(tmp_path: Path) -> None:
    triton = Triton(config=configured(tmp_path))
    triton.bind("m", lambda requests: requests, inputs=[FLOATS], outputs=[FLOATS])
    with pytest.raises(PyTritonInvalidOperationError, match="same name twice"):
        triton.bind("M", lambda requests: requests, inputs=[FLOATS], outputs=[FLOATS])
    assert not triton.stop()


# ------------------------------------------------------------------- scripts

SCRIPT = """
    import numpy as np
    from zmqtriton_extras.pytriton.decorators import batch
    from zmqtriton_extras.pytriton.model_config import Tensor
    from zmqtriton_extras.pytriton.triton import Triton, TritonConfig

    @batch
    def double(**inputs):
        return [inputs["INPUT_1"] * 2]

    config = TritonConfig(http_address="127.0.0.1", http_port={0}, grpc_port={1},
                          metrics_port={2}, log_file={3!r})
    with Triton(config=config) as triton:
        triton.bind("double", double, inputs=[Tensor(shape=(-1,), dtype=np.float32)],
                    outputs=[Tensor(shape=(-1,), dtype=np.float32)])
        is_alive = triton.is_alive
        # asked while it serves; a Ctrl-C before that ends the script as Python does
        triton.is_alive = lambda: print("serving", flush=True) or is_alive()
        triton.serve()
    print("over")
"""


@pytest.fixture
def script(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A script that serves by now, and its HTTP port."""
    ports = free_ports(3)
    code = textwrap.dedent(SCRIPT).format(*ports, str(tmp_path / "log.txt"))
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        try:
            assert process.stdout is not None
            assert "serving\n" == process.stdout.readline()
            assert _is_ready(ports[0])
            yield process, ports[0]
        finally:
            process.kill()


def _is_ready(port: int) -> bool:
    try:
        url = f"http://127.0.0.1:{port}/v2/models/double/ready"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        error.close()
        return False
    except OSError:
        return False


@pytest.mark.row("J01")
def test_ctrl_c_ends_a_script_and_its_server(script: tuple[subprocess.Popen[str], int]) -> None:
    process, port = script
    process.send_signal(signal.SIGINT)

    assert process.wait(60) == 0
    assert process.stdout is not None
    assert process.stdout.read().replace("serving\n", "") == "over\n"
    assert not _is_ready(port)


@pytest.mark.row("J01")
def test_a_script_that_is_killed_leaves_nothing(
    script: tuple[subprocess.Popen[str], int],
) -> None:
    process, port = script
    process.kill()
    process.wait()

    eventually(lambda: not _is_ready(port), within_s=60)
    # what else it has begun is looked for after each test


@pytest.mark.long("extras/pytriton/system/test_notebook.py::test_cells_bind_ask_and_bind_again")
@pytest.mark.row("J01")
def test_a_notebook_goes_on_while_it_serves(tmp_path: Path) -> None:
    ports = free_ports(3)
    code = f"""
        import asyncio, os, urllib.request
        import numpy as np
        from zmqtriton_extras.pytriton.model_config import Tensor
        from zmqtriton_extras.pytriton.triton import Triton, TritonConfig

        async def cells():
            config = TritonConfig(http_address="127.0.0.1", http_port={ports[0]},
                                  grpc_port={ports[1]}, metrics_port={ports[2]},
                                  log_file={str(tmp_path / "log.txt")!r})
            triton = Triton(config=config)
            tensor = Tensor(shape=(-1,), dtype=np.float32)
            triton.bind("m", lambda requests: requests, inputs=[tensor], outputs=[tensor])
            triton.serve()
            url = "http://127.0.0.1:{ports[0]}/v2/models/m/ready"
            print(urllib.request.urlopen(url, timeout=30).status, triton.stop())

        asyncio.run(cells())
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, cwd=ROOT, check=True
    )

    assert done.stdout == "200 True\n"


@pytest.mark.smoke
def test_the_first_model_answers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        add_sub_example(
            tmp_path / "workspace", logging.getLogger("check"), config=configured(tmp_path)
        )

    assert "AddSub answers {'OUTPUT_1'" in caplog.text
    assert not (tmp_path / "workspace").exists()
