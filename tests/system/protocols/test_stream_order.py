"""Requests of one gRPC stream are executed in the order in which the client sent them."""

from __future__ import annotations

import queue
from typing import Any

import pytest
import tritonclient.grpc as triton

from tests.support.clients import infer_inputs
from tests.support.journal import journal_arrays, read_journal
from tests.system.shared_server import SharedServer

pytestmark = pytest.mark.system

#: Names of requests; each large one needs more memory than those before it have left.
NAMES = ["a" * 300_000, "b", "c" * 5_000_000, "d", "e"]


@pytest.mark.row("D31", "D38")
def test_small_requests_do_not_overtake_large_ones(shared: SharedServer) -> None:
    answers: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
    server = shared
    server.load("journal")
    with triton.InferenceServerClient(server.grpc_address) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for name in NAMES:
            client.async_stream_infer("journal", infer_inputs(triton, **journal_arrays(name, 0)))
        got = [answers.get(timeout=60) for _ in NAMES]
        client.stop_stream()

    assert [None] * len(NAMES) == [error for _, error in got]
    assert NAMES == [result.as_numpy("ID").ravel()[0].decode() for result, _ in got]
    begun = [record.id for record in read_journal(server.journal) if record.event == "start"]
    assert [name[0] for name in NAMES] == [name[0] for name in begun]
