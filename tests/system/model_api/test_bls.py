"""Models that ask other models, in real servers."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest

from tests.support.journal import read_journal
from tests.support.server import Server, tensor
from tests.support.waiting import eventually
from tests.system.shared_server import SharedServer

_ASKED = ["add_sub", "identity_fp32", "told", "counting"]
_ASKERS = ["bls_threads", "bls_report", "bls_large"]
ONE = {"INPUT0": ["float32", [1]]}


pytestmark = [
    pytest.mark.system,
    pytest.mark.large_tensors,
    pytest.mark.as_nobody,
    pytest.mark.server(models=[*_ASKED, *_ASKERS]),
]


def _infer(server: Server, model: str, *inputs: dict[str, Any]) -> Any:
    """The outputs by name."""
    status, answer = server.infer_json(model, *inputs, within_s=120)
    assert 200 == status, answer
    return {output["name"]: output["data"] for output in answer["outputs"]}


def _count(server: Server, model: str, count: int) -> list[float]:
    return _infer(server, model, tensor("COUNT", "INT32", [count]))["OUTPUT"]


def _report(server: Server, **ask: Any) -> list[dict[str, Any]]:
    """Return what bls_report tells of the responses."""
    [document] = _infer(server, "bls_report", tensor("ASK", "BYTES", [json.dumps(ask)]))["REPORT"]
    return json.loads(document)


def _stream(server: Server, count: int, **ask: Any) -> list[dict[str, Any]]:
    inputs = {"COUNT": ["int32", [count]]}
    return _report(server, model_name="counting", inputs=inputs, stream=True, **ask)


def _numbers(report: list[dict[str, Any]]) -> list[int | None]:
    """None for a response without outputs."""
    return [r["outputs"]["NUMBER"][0] if r["outputs"] else None for r in report]


@pytest.mark.parametrize("count", [0, 1, 20, 200])
@pytest.mark.row("A56")
def test_a_model_asks_many_times_at_once(server: Server, count: int) -> None:
    assert list(range(count)) == _count(server, "bls_threads", count)


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


def test_a_stub_that_dies_is_an_error_for_the_model_that_asked(shared: SharedServer) -> None:
    ask = {"ID": ["bytes", [["a"]]], "MS": ["int32", [[30_000]]]}
    shared.load("journal", "bls_report")
    with ThreadPoolExecutor(1) as threads:
        future = threads.submit(_report, shared, model_name="journal", inputs=ask)
        eventually(lambda: read_journal(shared.journal), 30, "the model has begun")
        [stub] = shared.stub_pids("journal")
        psutil.Process(stub).kill()

        [response] = future.result(60)

    assert "UNAVAILABLE" == response["code"]
    assert response["error"].endswith("(killed by SIGKILL)")


@pytest.mark.parametrize("count", [1000, 100_000, 3_000_000])
def test_tensors_of_any_size(server: Server, count: int) -> None:
    assert [number * count for number in range(10)] == _count(server, "bls_large", count)


# ----------------------------------------------------------------- streams


# The last one is as many as are kept for a reader, however slow the machine makes it.
@pytest.mark.parametrize("count", [0, 1, 5, 1200])
@pytest.mark.row("A59")
def test_a_stream_ends_with_an_empty_response_where_the_model_sends_final_alone(
    server: Server, count: int
) -> None:
    assert [*range(count), None] == _numbers(_stream(server, count))


@pytest.mark.row("A65")
def test_a_stream_can_be_cancelled(server: Server) -> None:
    assert len(_stream(server, 10_000, parameters={"pause_ms": 5}, take=3)) < 1000


# -------------------------------------------------------------------- rest
