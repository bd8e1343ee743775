"""Models that ask other models, in real servers."""

from __future__ import annotations

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.server import Server
from tests.support.waiting import eventually
from tests.system.shared_server import SharedServer
from zmqtriton_addons.tools.demo import MODELS as DEMO_MODELS

pytestmark = pytest.mark.system

FRONTENDS = ()

_ASKED = ["add_sub", "identity_fp32", "not_found", "raising", "told", "counting"]
_ASKERS = ["bls_sync", "bls_async", "bls_threads", "bls_report", "bls_large"]
_WHERE = "Model {0} - Error when running inference: "
ONE = {"INPUT0": ["float32", [1]]}


MODELS = [*_ASKED, *_ASKERS]


def _infer(server: Server, model: str, **inputs: tuple[str, list[int], list[Any]]) -> Any:
    """The outputs by name; of an input (datatype, shape, data)."""
    tensors = [
        {"name": name, "datatype": datatype, "shape": shape, "data": data}
        for name, (datatype, shape, data) in inputs.items()
    ]
    url = f"{server.url}/v2/models/{model}/infer"
    body = json.dumps({"inputs": tensors}).encode()
    with urllib.request.urlopen(url, body, timeout=120) as answer:
        return {output["name"]: output["data"] for output in json.load(answer)["outputs"]}


def _count(server: Server, model: str, count: int) -> list[float]:
    numbers: list[float] = _infer(server, model, COUNT=("INT32", [1], [count]))["OUTPUT"]
    return numbers


def _report(server: Server, **ask: Any) -> list[dict[str, Any]]:
    """Return what bls_report tells of the responses."""
    [document] = _infer(server, "bls_report", ASK=("BYTES", [1], [json.dumps(ask)]))["REPORT"]
    report: list[dict[str, Any]] = json.loads(document)
    return report


def _stream(server: Server, count: int, **ask: Any) -> list[dict[str, Any]]:
    inputs = {"COUNT": ["int32", [count]]}
    return _report(server, model_name="counting", inputs=inputs, stream=True, **ask)


def _numbers(report: list[dict[str, Any]]) -> list[int | None]:
    """None for a response without outputs."""
    return [r["outputs"]["NUMBER"][0] if r["outputs"] else None for r in report]


def _add(server: Server, model: str, first: int = 0) -> None:
    left = [float(first + i) for i in range(32)]

    outputs = _infer(
        server, model, INPUT0=("FP32", [2, 16], left), INPUT1=("FP32", [2, 16], [3] * 32)
    )

    assert [number + 3 for number in left] == outputs["OUTPUT0"]
    assert [number - 3 for number in left] == outputs["OUTPUT1"]


def test_a_model_passes_on_what_another_one_answers(server: Server) -> None:
    _add(server, "bls_sync")


def test_many_clients_of_a_model_that_asks(server: Server) -> None:
    with ThreadPoolExecutor(8) as threads:
        for future in [threads.submit(_add, server, "bls_sync", i) for i in range(64)]:
            future.result()


@pytest.mark.parametrize("model", ["bls_async", "bls_threads"])
@pytest.mark.parametrize("count", [0, 1, 20, 200])
@pytest.mark.row("A56", "A57")
def test_a_model_asks_many_times_at_once(server: Server, model: str, count: int) -> None:
    assert list(range(count)) == _count(server, model, count)


@pytest.mark.row("A61", "A63")
def test_what_the_caller_says_reaches_the_other_model(server: Server) -> None:
    [response] = _report(
        server,
        model_name="told",
        inputs=ONE,
        requested_output_names=["TOLD", "TOLD"],
        request_id="the id",
        correlation_id="a sequence",
        flags=3,
        timeout=5_000_000,
        parameters={"text": "é", "number": -7, "yes": True},
    )

    assert {"a": 1, "b": True} == response["parameters"]
    assert {
        "id": "the id",
        "correlation": "a sequence",
        "flags": 3,
        "timeout": 5_000_000,
        "parameters": {"text": "é", "number": -7, "yes": True},
        "outputs": ["TOLD"],
    } == json.loads(response["outputs"]["TOLD"][0])


def test_only_the_requested_outputs_come(server: Server) -> None:
    inputs = {name: ["float32", [[1] * 16]] for name in ("INPUT0", "INPUT1")}

    [response] = _report(
        server, model_name="add_sub", inputs=inputs, requested_output_names=["OUTPUT1"]
    )

    assert {"OUTPUT1": [[0] * 16]} == response["outputs"]


def test_tensors_of_no_size(server: Server) -> None:
    [response] = _report(server, model_name="identity_fp32", inputs={"INPUT0": ["float32", []]})

    assert {"OUTPUT0": []} == response["outputs"]


def _not_ready(model: str) -> str:
    text = f"Failed for execute the inference request. Model '{model}' is not ready."
    return _WHERE.format(model) + text


def _unknown_input(model: str) -> str:
    return (
        f"{_WHERE.format(model)}[request id: <id_unknown>] unexpected inference input 'X' for "
        f"model '{model}', allowed inputs are: INPUT0"
    )


@pytest.mark.parametrize(
    ("ask", "code", "text"),
    [
        ({"model_name": "nobody"}, "UNAVAILABLE", _not_ready("nobody")),
        ({"model_name": "told", "model_version": 7}, "UNAVAILABLE", _not_ready("told")),
        ({"model_name": "not_found"}, "NOT_FOUND", "nothing under that name"),
        (
            {"model_name": "told", "inputs": {"X": ["float32", [1]]}},
            "INVALID_ARG",
            _unknown_input("told"),
        ),
        (
            {"model_name": "told", "requested_output_names": ["Y"]},
            "INVALID_ARG",
            f"{_WHERE.format('told')}[request id: <id_unknown>] unexpected inference output 'Y' "
            "for model 'told'",
        ),
        (
            {"model_name": "told", "correlation_id": "c" * 2000},
            "INVALID_ARG",
            "the request cannot be sent: Request: correlation is out of range",
        ),
        (
            {"model_name": "counting"},
            "UNSUPPORTED",
            f"{_WHERE.format('counting')}Model counting is using the decoupled. The current BLS "
            "request call doesn't support models using the decoupled transaction policy. Please "
            "use 'decoupled=True' argument to the 'exec' or 'async_exec' calls for decoupled "
            "models.'",
        ),
    ],
)
@pytest.mark.row("A56", "A58", "A60")
def test_errors_come_as_responses(
    server: Server, ask: dict[str, Any], code: str, text: str
) -> None:
    [response] = _report(server, **{"inputs": ONE, **ask})

    assert {"error": text, "code": code} == response


def test_an_exception_of_the_other_model_comes_as_a_response(server: Server) -> None:
    [response] = _report(server, model_name="raising", inputs=ONE)

    assert "INTERNAL" == response["code"]
    assert "message: ValueError: on purpose" in response["error"]


def test_a_stub_that_dies_is_an_error_for_the_model_that_asked(shared: SharedServer) -> None:
    ask = {"ID": ["bytes", [["a"]]], "MS": ["int32", [[30_000]]]}
    server = shared
    server.load("journal", "bls_report")
    with ThreadPoolExecutor(1) as threads:
        future = threads.submit(_report, server, model_name="journal", inputs=ask)
        eventually(lambda: "start" in _text(server.journal), 30, "the model has begun")
        [stub] = server.stub_pids("journal")
        psutil.Process(stub).kill()

        [response] = future.result(60)

    assert "UNAVAILABLE" == response["code"]
    assert response["error"].endswith("(killed by SIGKILL)")


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize("count", [1000, 100_000, 3_000_000])
def test_tensors_of_any_size(server: Server, count: int) -> None:
    assert [number * count for number in range(10)] == _count(server, "bls_large", count)


def test_the_memory_of_large_tensors_is_used_again(server: Server) -> None:
    def usage() -> list[int]:
        pids = [pid for model in ("bls_large", "identity_fp32") for pid in server.stub_pids(model)]
        return [psutil.Process(pid).memory_info().rss for pid in pids]

    _count(server, "bls_large", 1_000_000)
    before = usage()

    for _ in range(10):
        _count(server, "bls_large", 1_000_000)

    # Four megabytes a hundred times; a few blocks more are needed where one comes back late.
    more = [after - earlier for after, earlier in zip(usage(), before, strict=True)]
    assert max(more) < 64 << 20


# ----------------------------------------------------------------- streams


# The last one is as many as are kept for a reader, however slow the machine makes it.
@pytest.mark.parametrize("count", [0, 1, 5, 1200])
@pytest.mark.row("A59")
def test_a_stream_ends_with_an_empty_response_where_the_model_sends_final_alone(
    server: Server, count: int
) -> None:
    assert [*range(count), None] == _numbers(_stream(server, count))


def test_a_stream_ends_with_the_last_response_where_final_comes_with_it(server: Server) -> None:
    assert [0, 1, 2] == _numbers(_stream(server, 3, parameters={"with_last": True}))


def test_an_error_amid_a_stream_does_not_end_it(server: Server) -> None:
    report = _stream(server, 3, parameters={"error_at": 1})

    assert {"error": "left out", "code": "UNSUPPORTED"} == report.pop(1)
    assert [0, 2, None] == _numbers(report)


@pytest.mark.row("A59")
def test_a_stream_can_be_iterated_again(server: Server) -> None:
    assert [0, 1, None] == _numbers(_stream(server, 2, again=1))


@pytest.mark.row("A59")
def test_a_stream_of_a_model_that_answers_once(server: Server) -> None:
    inputs = {"INPUT0": ["float32", [4]]}

    report = _report(server, model_name="identity_fp32", inputs=inputs, stream=True)

    assert [{"OUTPUT0": [4]}] == [response["outputs"] for response in report]


def test_a_stream_of_a_model_that_is_not_ready_is_an_error(server: Server) -> None:
    report = _report(server, model_name="nobody", inputs=ONE, stream=True)

    assert [_not_ready("nobody")] == [response["error"] for response in report]


@pytest.mark.row("A65")
def test_a_stream_can_be_cancelled(server: Server) -> None:
    report = _stream(server, 10_000, parameters={"pause_ms": 5}, take=3)

    assert len(report) < 1000


# -------------------------------------------------------------------- rest


def test_a_model_asks_a_model_that_asks(server: Server) -> None:
    inputs = {"INPUT0": ["float32", [[5] * 16]], "INPUT1": ["float32", [[2] * 16]]}

    [response] = _report(server, model_name="bls_sync", inputs=inputs)

    assert {"OUTPUT0": [[7] * 16], "OUTPUT1": [[3] * 16]} == response["outputs"]


def test_inferences_that_models_ask_for_are_counted(server: Server) -> None:
    def counted() -> int:
        entry = server.statistics("identity_fp32")
        return int(entry["inference_count"])

    before = counted()

    _report(server, model_name="identity_fp32", inputs={"INPUT0": ["float32", [1, 2, 3]]})

    assert before + 1 == counted()


def test_a_thousand_questions_leave_nothing_behind(server: Server) -> None:
    [pid] = server.stub_pids("bls_threads")
    stub = psutil.Process(pid)

    def usage() -> tuple[int, int, int]:
        return stub.memory_info().rss, stub.num_fds(), stub.num_threads()

    for _ in range(3):
        _count(server, "bls_threads", 200)
    memory, descriptors, threads = usage()

    for _ in range(5):
        _count(server, "bls_threads", 200)

    more_memory, more_descriptors, more_threads = usage()
    assert more_descriptors <= descriptors + 2
    # Its pool begins a thread where none is idle, up to eight.
    assert more_threads <= threads + 8
    assert more_memory < memory + (4 << 20)


def test_the_pipeline_of_the_demonstration(shared: SharedServer) -> None:
    models = ("string_upper", "add_sub", "pipeline")
    for name in models:
        shared.add_model(DEMO_MODELS / name)
    shared.load(*models)

    outputs = _infer(
        shared,
        "pipeline",
        TEXT=("BYTES", [2], ["ab", "é"]),
        LEFT=("FP32", [16], [1] * 16),
        RIGHT=("FP32", [16], [2] * 16),
    )

    assert {"UPPER": ["AB", "É"], "SUM": [3] * 16} == outputs


def test_outside_of_execute_a_model_may_not_ask(shared: SharedServer) -> None:
    model = shared.repository / "early"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text('backend: "python"\n')
    (model / "1" / "model.py").write_text(_EARLY)

    error = shared.control_model("load", "early")

    assert "BLS is only supported during the 'execute' function." in error


_EARLY = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        asked = {"inputs": [], "requested_output_names": [], "model_name": "other"}
        pb_utils.InferenceRequest(**asked).exec()

    def execute(self, requests):
        return [pb_utils.InferenceResponse() for _ in requests]
"""
