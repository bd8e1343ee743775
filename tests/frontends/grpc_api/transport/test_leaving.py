"""Clients of our own transport, which hear that they are to go elsewhere and still ask."""

from __future__ import annotations

import math
from functools import partial

import pytest

from tests.frontends.fake_gateway import version_info
from tests.frontends.grpc_api.fake_gateway import INFER, LIVE, FakeGateway, written
from tests.frontends.grpc_api.serving import GrpcServerThread
from tests.support import raw_http2 as h2
from tests.support.waiting import eventually
from zmqtriton_frontends.grpc_api.transport import connection as native_connection

pytestmark = pytest.mark.slow

_GOAWAY = bytes([h2.GOAWAY, 0, 0, 0, 0, 0])
_ASKED = h2.frame(h2.PING, 0, 0, b"farewell")
_HEARD = h2.frame(h2.PING, 1, 0, b"farewell")


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> FakeGateway:
    # who says nothing is waited for
    monkeypatch.setattr(native_connection, "_LEAVE_S", 600.0)
    return FakeGateway(version_info("m"), version_info("s", sequence_batching={}))


def live(stream: int) -> bytes:
    return h2.headers_frame(stream, LIVE) + h2.data_frame(stream, b"", flags=h2.END_STREAM)


def answers(connection: h2.Connection) -> int:
    """Return how many calls have ended; clients need not read the names of headers again."""
    return sum(frame == h2.DATA for frame in connection.frame_types())


def ask(connection: h2.Connection, frames: bytes) -> None:
    before = answers(connection)
    connection.send(frames)

    def is_answered() -> bool:
        connection.read_for(0.01)
        return answers(connection) > before

    eventually(is_answered, within_s=20)


def step(stream: int, *, start: bool = False, end: bool = False) -> bytes:
    parameters = {
        "sequence_id": {"int64_param": 7},
        "sequence_start": {"bool_param": start},
        "sequence_end": {"bool_param": end},
    }
    data = written("s", parameters=parameters)
    return h2.headers_frame(stream, INFER) + h2.data_frame(stream, data, flags=h2.END_STREAM)


def leave(server: GrpcServerThread) -> None:
    server.run_function(partial(server.native.leave, True))


@pytest.mark.row("D46")
def test_what_comes_before_a_client_has_heard_is_answered(server: GrpcServerThread) -> None:
    with server.connect() as connection:
        ask(connection, live(1))
        stopped = server.begin_stop(within_s=600)
        connection.read_until(_ASKED)

        ask(connection, live(3))
        ask(connection, live(5))
        connection.send(_HEARD)
        stopped()

        connection.read_until(b"no such bytes, but the end")
        assert 2 == connection.frame_types().count(h2.GOAWAY), "the second names the last call"


def test_calls_under_way_end_before_their_connection(server: GrpcServerThread) -> None:
    release = server.hold()
    with server.connect() as connection:
        connection.send(step(1))
        eventually(lambda: server.gateway.requests, within_s=20)
        stopped = server.begin_stop(within_s=600)
        connection.read_until(_ASKED)
        connection.send(_HEARD)
        connection.read_for(0.1)
        assert 0 == answers(connection)

        release()
        stopped()

        connection.read_until(b"no such bytes, but the end")
        assert 1 == answers(connection)


@pytest.mark.row("E78")
def test_a_client_is_told_to_go_when_its_sequence_has_ended(server: GrpcServerThread) -> None:
    with server.connect() as connection, server.connect() as other:
        ask(connection, step(1, start=True))
        ask(other, live(1))
        leave(server)

        assert _GOAWAY in other.read_until(_ASKED)
        ask(connection, step(3))
        assert _GOAWAY not in connection.received
        ask(connection, step(5, end=True))

        assert _GOAWAY in connection.read_until(_ASKED)


@pytest.mark.row("E78")
def test_a_sequence_that_begins_before_a_client_has_heard_is_left_to_the_next_server(
    server: GrpcServerThread,
) -> None:
    server.gateway.is_stopping, server.gateway.begins_sequences_s = True, math.inf
    with server.connect() as connection:
        ask(connection, live(1))
        leave(server)
        assert _GOAWAY in connection.read_until(_ASKED)

        ask(connection, live(3))
        ask(connection, step(5, start=True, end=True))
        connection.send(step(7, start=True))

        unseen = h2.frame(h2.GOAWAY, 0, 0, (5).to_bytes(4, "big") + bytes(4))
        assert unseen in connection.read_until(h2.frame(h2.RESET, 0, 7, (7).to_bytes(4, "big")))
    assert 1 == len(server.gateway.requests), "what begins and ends at once goes on"


def test_a_sequence_that_begins_where_no_other_server_follows_goes_on(
    server: GrpcServerThread,
) -> None:
    with server.connect() as connection:
        ask(connection, live(1))
        leave(server)
        connection.read_until(_ASKED)

        ask(connection, step(3, start=True))


def test_a_client_between_two_sequences_is_told_after_the_next(
    server: GrpcServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_connection, "_BETWEEN_S", 600.0)
    with server.connect() as connection, server.connect() as other:
        ask(connection, step(1, start=True, end=True))
        ask(other, live(1))
        leave(server)
        other.read_until(_ASKED)

        ask(connection, step(3, start=True))
        assert _GOAWAY not in connection.received
        ask(connection, step(5, end=True))

        assert _GOAWAY in connection.read_until(_ASKED)


def test_a_client_that_begins_no_more_sequences_is_told_nevertheless(
    server: GrpcServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_connection, "_BETWEEN_S", 0.01)
    with server.connect() as connection:
        ask(connection, step(1, start=True, end=True))
        leave(server)

        assert _GOAWAY in connection.read_until(_ASKED)


def test_who_has_just_connected_asks_once_before_it_is_told(
    server: GrpcServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_connection, "_FRESH_S", 2.0)
    with server.connect() as connection:
        connection.read_until(bytes([h2.SETTINGS, 1, 0, 0, 0, 0]))
        leave(server)
        connection.read_now()
        assert _GOAWAY not in connection.received

        ask(connection, live(1))

        assert _GOAWAY in connection.read_until(_ASKED)
