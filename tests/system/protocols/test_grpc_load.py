"""Streams and cancelled calls over gRPC: many, in small, and in order; `make faults` has more."""

from __future__ import annotations

import queue
from typing import Any

import pytest
import tritonclient.grpc as triton

from tests.faults import grpc_load
from tests.support.clients import infer_inputs
from tests.support.journal import journal_arrays, read_journal
from tests.support.server import Server
from tests.system.shared_server import SharedServer

STREAMS, RESPONSES, CANCELS, READERS = 100, 50, 500, 20


pytestmark = [
    pytest.mark.system,
    pytest.mark.server(models=grpc_load.MODELS),
]


@pytest.mark.row("D48")
def test_every_one_of_many_streams_is_complete_and_ends_once(server: Server) -> None:
    grpc_load.run_streams(server, STREAMS, RESPONSES)


@pytest.mark.long("system/protocols/test_streams.py::test_a_cancelled_stream_reaches_the_model")
@pytest.mark.row("D36")
def test_nothing_stays_of_calls_that_are_cancelled_at_any_instant(server: Server) -> None:
    ends = grpc_load.cancel_many(server, CANCELS)

    assert ends["cancelled"] > CANCELS // 10
    assert ends["answered"] > 0


@pytest.mark.row("D37")
def test_a_reader_that_stops_does_not_stop_the_others(server: Server) -> None:
    grpc_load.run_streams_beside_stalled(server, READERS, RESPONSES)


# -------------------------------------------------------------------------------------------- order
# Requests of one stream are executed in the order in which the client sent them.


#: Names of requests; each large one needs more memory than those before it have left.
NAMES = ["a" * 300_000, "b", "c" * 5_000_000, "d", "e"]


@pytest.mark.row("D31", "D38")
def test_small_requests_do_not_overtake_large_ones(shared: SharedServer) -> None:
    answers: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
    shared.load("journal")
    with triton.InferenceServerClient(shared.grpc_address) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for name in NAMES:
            client.async_stream_infer("journal", infer_inputs(triton, **journal_arrays(name, 0)))
        got = [answers.get(timeout=60) for _ in NAMES]
        client.stop_stream()

    assert [None] * len(NAMES) == [error for _, error in got]
    assert NAMES == [result.as_numpy("ID").ravel()[0].decode() for result, _ in got]
    begun = [record.id for record in read_journal(shared.journal) if record.event == "start"]
    assert [name[0] for name in NAMES] == [name[0] for name in begun[-len(NAMES) :]]
