"""Sequences with real clients: what their model sees, how they end, and what is lost when."""

from __future__ import annotations

import json
import queue
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from tests.support.clients import infer_inputs
from tests.support.server import Copy, Server, Written
from tests.support.waiting import eventually

_START, _END = 1, 2
#: Passes on to `sequences` what it is asked, as another request of the same sequence.
_CALLER = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self._ask(request) for request in requests]

    def _ask(self, request):
        asked = pb_utils.InferenceRequest(
            model_name="sequences", requested_output_names=["SUM"], inputs=request.inputs(),
            correlation_id=request.correlation_id(), flags=request.flags(),
        )
        response = asked.exec()
        if response.has_error():
            return pb_utils.InferenceResponse(error=response.error())
        return pb_utils.InferenceResponse(output_tensors=response.output_tensors())
"""
_CALLER_CONFIG = """
backend: "python"
max_batch_size: 4
input [ { name: "VALUE", data_type: TYPE_INT32, dims: [ 1 ] } ]
output [ { name: "SUM", data_type: TYPE_INT32, dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU } ]
"""


class Said(NamedTuple):
    sum: int
    #: What the model's batch was given: sequence, flags and inputs of each.
    batch: list[tuple[int | str, int, dict[str, list[Any]]]]


pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=[
            "sequences",
            Copy(
                "sequences",
                "oldest",
                edit=(
                    "direct { }",
                    "oldest { max_candidate_sequences: 8 max_queue_delay_microseconds: 20000 }",
                ),
            ),
            Copy("sequences", "mortal"),
            Written("caller", _CALLER_CONFIG, _CALLER),
        ]
    ),
]


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpclient.InferenceServerClient]:
    with httpclient.InferenceServerClient(server.url.removeprefix("http://")) as client:
        yield client


def _input(module: Any, value: int) -> list[Any]:
    return infer_inputs(module, VALUE=np.array([[value]], np.int32))


def _said(result: Any) -> Said:
    report = result.as_numpy("REPORT")
    batch = [] if report is None else json.loads(report.ravel()[0])["batch"]
    return Said(int(result.as_numpy("SUM").ravel()[0]), [tuple(row) for row in batch])


def _ask(
    client: httpclient.InferenceServerClient,
    model: str,
    sequence: int | str,
    flags: int = 0,
    value: int = 1,
) -> Said:
    result = client.infer(
        model,
        _input(httpclient, value),
        sequence_id=sequence,
        sequence_start=bool(flags & _START),
        sequence_end=bool(flags & _END),
    )
    return _said(result)


def _error(client: httpclient.InferenceServerClient, *arguments: Any) -> tuple[str, str]:
    with pytest.raises(InferenceServerException) as raised:
        _ask(client, *arguments)
    return str(raised.value.status()), str(raised.value.message())


def _must_start(sequence: int | str, model: str) -> str:
    return (
        f"inference request for sequence {sequence} to model '{model}' must specify the START "
        "flag on the first request of the sequence"
    )


# --------------------------------------------------------------- admission


@pytest.mark.row("E70", "E71")
@pytest.mark.parametrize("model", ["sequences", "oldest"])
@pytest.mark.parametrize("sequence", [1 << 40, "a name"])
def test_a_sequence_adds_up_from_start_to_end(
    server: Server, client: httpclient.InferenceServerClient, model: str, sequence: int | str
) -> None:
    sums = [_ask(client, model, sequence, flags, 5).sum for flags in (_START, 0, 0)]
    sums += [_ask(client, model, sequence, flags, 7).sum for flags in (_START, _END)]

    assert [5, 10, 15, 7, 14] == sums
    assert ("400", _must_start(sequence, model)) == _error(client, model, sequence)
    text = (
        f"sequence {sequence} for model '{model}' has a conflict. The previous sequence did not "
        "end before this sequence start. Previous sequence will be terminated early."
    )
    eventually(lambda: text in server.log_text(), 30, "a warning")


# ------------------------------------------------------------ order and time


def _stream(server: Server, model: str, steps: list[tuple[int, int, int]]) -> dict[str, list[Said]]:
    """All at once on one stream: sequence, flags and value of each. What each sequence got."""
    answers: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
    with grpcclient.InferenceServerClient(server.grpc_address) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for sequence, flags, value in steps:
            client.async_stream_infer(
                model,
                _input(grpcclient, value),
                request_id=str(sequence),
                sequence_id=sequence,
                sequence_start=bool(flags & _START),
                sequence_end=bool(flags & _END),
            )
        got = [answers.get(timeout=60) for _ in steps]
        client.stop_stream()
    assert {None} == {error for _, error in got}
    said: dict[str, list[Said]] = {}
    for result, _ in got:
        said.setdefault(result.get_response().id, []).append(_said(result))
    return said


@pytest.mark.row("D38", "E77")
@pytest.mark.parametrize("model", ["sequences", "oldest"])
def test_sequences_on_one_stream_keep_their_order(server: Server, model: str) -> None:
    steps = [_START, *[0] * 18, _END]
    rows = [(i, flags, step) for step, flags in enumerate(steps) for i in (11, 12, 13)]

    said = _stream(server, model, rows)

    sums = [step * (step + 1) // 2 for step in range(len(steps))]
    assert {"11": sums, "12": sums, "13": sums} == {
        sequence: [one.sum for one in answers] for sequence, answers in said.items()
    }


# ------------------------------------------------------------ models, deaths


@pytest.mark.row("A63")
def test_a_model_calls_another_as_a_sequence(client: httpclient.InferenceServerClient) -> None:
    sums = [_ask(client, "caller", 21, flags, 3).sum for flags in (_START, 0, _END)]
    sums += [_ask(client, "caller", "text", flags, 4).sum for flags in (_START, 0, _END)]

    assert [3, 6, 9, 4, 8, 12] == sums
    assert _error(client, "caller", 21)[1].endswith(_must_start(21, "sequences"))


def test_a_sequence_dies_with_its_stub_and_says_why(
    server: Server, client: httpclient.InferenceServerClient
) -> None:
    _ask(client, "mortal", 1, _START)
    server.kill_only("stub", "mortal")

    def is_known() -> bool:
        return "killed by SIGKILL" in _error(client, "mortal", 1)[1]

    eventually(is_known, 30, "the broker's knowing of the death")
    code, text = _error(client, "mortal", 1)
    assert "503" == code
    assert text.startswith(_must_start(1, "mortal") + ", because an earlier one was lost: ")
    assert 1 == _ask(client, "mortal", 1, _START | _END).sum
