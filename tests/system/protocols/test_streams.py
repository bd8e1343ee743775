"""Streams of responses over both protocols, from a real client to the model and back."""

from __future__ import annotations

import concurrent.futures
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton

from tests.support.clients import infer_inputs
from tests.support.journal import read_journal
from tests.support.scraping import pending_requests, sum_series
from tests.support.server import Server
from tests.support.waiting import eventually

TOKENS = 64
STREAMS = 32
PAUSE_S = 5.0
#: Between requests of others, which are to be answered, and not to keep the machine busy.
BETWEEN_S = 0.25
#: Far more than what fits between a model and a client that does not read.
FLOOD = 12_000
TOO_SLOW = "the reader of this stream did not keep up"


pytestmark = [
    pytest.mark.system,
    pytest.mark.as_nobody,
    pytest.mark.server(models=["tokens"]),
]


def was_cancelled(server: Server, request_id: str) -> bool:
    return ("cancelled", request_id) in [(r.event, r.id) for r in read_journal(server.journal)]


# ------------------------------------------------------------------------ HTTP


class EventReader:
    """One request to generate_stream and its events, as documents."""

    def __init__(self, server: Server, model: str, document: dict[str, Any]) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
        self._connection.connect()
        # So that little of the stream is in the kernel's hands.
        self._connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        path = f"/v2/models/{model}/generate_stream"
        self._connection.request("POST", path, json.dumps(document))
        self.response = self._connection.getresponse()

    def __enter__(self) -> EventReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.response.close()
        self._connection.close()

    def __iter__(self) -> Iterator[Any]:
        while line := self.response.readline():
            assert line.startswith(b"data: "), line
            if (end := self.response.readline()) != b"\n":
                # an error of the moment says when to ask again
                assert end.startswith(b"retry: "), end
                assert self.response.readline() == b"\n"
            yield json.loads(line[6:])


def read_tokens(server: Server, count: int) -> list[Any]:
    with EventReader(server, "tokens", {"COUNT": count}) as events:
        return list(events)


def expect_tokens(count: int) -> list[Any]:
    common = {"model_name": "tokens", "model_version": "1"}
    return [{"INDEX": i, "TOKEN": f"token{i}", **common} for i in range(count)]


def test_many_streams_of_events_are_complete_and_in_order(server: Server) -> None:
    with concurrent.futures.ThreadPoolExecutor(STREAMS) as threads:
        streams = list(threads.map(lambda _: read_tokens(server, TOKENS), range(STREAMS)))

    assert [expect_tokens(TOKENS)] * STREAMS == streams


def test_a_reader_of_events_that_pauses_loses_nothing_silently(server: Server) -> None:
    with EventReader(server, "tokens", {"COUNT": FLOOD}) as events:
        reading = iter(events)
        got = [next(reading)]
        resume = time.monotonic() + PAUSE_S
        while time.monotonic() < resume:
            # The others do not notice.
            assert expect_tokens(TOKENS) == read_tokens(server, TOKENS)
            time.sleep(BETWEEN_S)
        got += reading

    check_flood([event.get("INDEX") for event in got], got[-1].get("error"))


def check_flood(indices: list[int | None], error: str | None) -> None:
    """All of the flood, or its beginning and the reason why it ends there."""
    if error is not None:
        assert TOO_SLOW in error
        assert indices.pop() is None
    else:
        assert len(indices) == FLOOD
    assert list(range(len(indices))) == indices


@pytest.mark.row("C33")
def test_a_client_that_leaves_has_its_events_cancelled(server: Server) -> None:
    with EventReader(server, "tokens", {"id": "left", "COUNT": 10**6, "DELAY_US": 1000}) as events:
        next(iter(events))

    eventually(lambda: was_cancelled(server, "left"), 30, "the model sees the cancellation")


# ------------------------------------------------------------------------ gRPC


def count_input(client: Any, count: int, delay_us: int = 0) -> list[Any]:
    values = {"COUNT": count, "DELAY_US": delay_us}
    return infer_inputs(client, **{name: np.array([v], np.int32) for name, v in values.items()})


class Inbox:
    """The results and errors of a client's callback, in the order of their arrival."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._changed = threading.Condition()

    def __call__(self, result: Any, error: Any) -> None:
        with self._changed:
            self.items.append(error if result is None else result)
            self._changed.notify()

    def wait_for(self, *ids: str) -> None:
        """Wait until each of these requests has a response."""

        def have_all() -> bool:
            return {*ids} <= {item.get_response().id for item in self.items}

        with self._changed:
            assert self._changed.wait_for(have_all, 60), self.items


def test_a_cancelled_stream_reaches_the_model(server: Server) -> None:
    inbox = Inbox()
    with triton.InferenceServerClient(server.grpc_address) as client:
        client.start_stream(inbox)
        for request_id in ("first", "second"):
            inputs = count_input(triton, 10**6, delay_us=1000)
            client.async_stream_infer("tokens", inputs, request_id=request_id)
        # one that has not reached the model would be cancelled without it
        inbox.wait_for("first", "second")
        client.stop_stream(cancel_requests=True)

    def both() -> bool:
        return was_cancelled(server, "first") and was_cancelled(server, "second")

    eventually(both, 30, "the model sees the cancellations")


# ------------------------------------------------------------------ statistics


@pytest.mark.row("C82")
def test_responses_are_counted_by_their_index_whichever_way_they_went(server: Server) -> None:
    def counts() -> dict[str, dict[str, int]]:
        rows = server.statistics("tokens")["response_stats"].items()
        return {i: {kind: of["count"] for kind, of in row.items()} for i, row in rows}

    # Nothing of earlier tests goes on that would be counted meanwhile.
    eventually(lambda: sum_series(server, "zmqtriton_executing_count") == 0, 30, "streams end")
    eventually(lambda: pending_requests(server, "tokens") == 0, 30, "none of them waits")
    before = counts()
    read_tokens(server, 0)
    read_tokens(server, TOKENS)
    after = counts()
    assert server.statistics("tokens")["inference_stats"]["success"]["count"] > 0

    def grown(index: int, kind: str) -> int:
        return after[str(index)][kind] - before.get(str(index), {}).get(kind, 0)

    kinds = ("compute_infer", "compute_output", "success", "fail", "empty_response", "cancel")
    assert set(kinds) == set(after["0"])
    assert [1, 1, 1, 0, 1, 0] == [grown(0, kind) for kind in kinds]
    for index in range(1, TOKENS):
        assert [1, 1, 1, 0, 0, 0] == [grown(index, kind) for kind in kinds]
    with triton.InferenceServerClient(server.grpc_address) as client:
        [over_grpc] = client.get_inference_statistics("tokens").model_stats
    own_rows = over_grpc.response_stats
    assert after["0"]["success"] == own_rows["0"].success.count
    assert set(after) == set(own_rows)
    assert (
        own_rows["0"].success.ns == own_rows["0"].compute_infer.ns + own_rows["0"].compute_output.ns
    )
