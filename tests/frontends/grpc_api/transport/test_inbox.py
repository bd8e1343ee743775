"""Bytes of a client that wait for its turn, times until a retry, and parts of grpcio."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from tests.frontends.http2.talk import Talk
from tests.supervisor.settings import frontend_settings
from tests.support import raw_http2 as h2
from tests.support.shares import share_of
from zmqtriton_floor.errors import OVERLOADED, InvalidArgument, Unavailable
from zmqtriton_frontends.grpc_api.transport.grpcio_server import GrpcCall, channel_arguments
from zmqtriton_frontends.grpc_api.transport.inbox import Inbox
from zmqtriton_frontends.grpc_api.transport.lifecycle import pushback
from zmqtriton_frontends.inference.connected_client import ConnectedClient
from zmqtriton_frontends.process.ledger import Book, Ledger
from zmqtriton_frontends.process.turns import Turns


def test_a_client_that_leaves_amid_its_turns_gives_their_room_back() -> None:
    # its turn is over after the first frame: the time of its connection is far ahead
    turns, book = Turns(lambda work: None, lambda: 0.0), Book(1000)
    transport = SimpleNamespace(pause_reading=lambda: None)
    client = ConnectedClient(Ledger(1000), turns, lambda _: None)
    inbox = Inbox(client, share_of(book), Talk().connection, transport, lambda: None)
    inbox.take(memoryview(h2.frame(h2.PING, 0, 0, bytes(8)) * 3))
    assert 2 * 17 == book.held

    inbox.close()

    assert 0 == book.held


@pytest.mark.parametrize(
    ("retry_after_ms", "told"), [(0, "1000"), (200, "1000"), (6001, "6001"), (10**7, "300000")]
)
def test_clients_wait_as_long_as_the_model_needs(retry_after_ms: int, told: str) -> None:
    expected = (("grpc-retry-pushback-ms", told),)

    assert expected == pushback(Unavailable.grpc_status, OVERLOADED, retry_after_ms)
    assert () == pushback(Unavailable.grpc_status, "not ready", retry_after_ms)
    assert () == pushback(InvalidArgument.grpc_status, OVERLOADED, retry_after_ms)


@pytest.mark.parametrize("left_s", [None, 3e11, float("inf")])
def test_a_deadline_in_thousands_of_years_is_none(left_s: float | None) -> None:
    class Context:
        def time_remaining(self) -> float | None:
            return left_s

    assert GrpcCall(Context(), Ledger(1)).deadline_ns == 0


def test_a_call_that_has_ended_leaves_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[Callable[[object], None]] = []
    left: list[str] = []
    monkeypatch.setattr(Ledger, "leave", lambda ledger, place, client: left.append(place))

    class Context:
        add_done_callback = ends.append

        def peer(self) -> str:
            return "ipv4:127.0.0.1:40000"

    call = GrpcCall(Context(), Ledger(1))
    assert call.requests is call.requests, "one share, and none of what is answered"
    ends[0](None)

    assert ["127.0.0.1"] == left


@pytest.mark.row(
    "D27",
    "D43",
    "--grpc-keepalive-time",
    "--grpc-keepalive-timeout",
    "--grpc-keepalive-permit-without-calls",
    "--grpc-http2-max-pings-without-data",
    "--grpc-http2-min-recv-ping-interval-without-data",
    "--grpc-http2-max-ping-strikes",
)
def test_the_settings_reach_grpc() -> None:
    arguments = dict(
        channel_arguments(
            frontend_settings(
                "grpc", grpc_keepalive_permit_without_calls=True, grpc_max_connection_age=5000
            ).grpc
        )
    )

    assert arguments == {
        "grpc.max_receive_message_length": 2147483647,
        "grpc.max_send_message_length": 2147483647,
        "grpc.so_reuseport": 1,
        "grpc.max_concurrent_streams": 10_000,
        "grpc.server.max_pending_requests": 40_000,
        "grpc.server.max_pending_requests_hard_limit": 80_000,
        "grpc.keepalive_time_ms": 7200000,
        "grpc.keepalive_timeout_ms": 20000,
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.http2.max_pings_without_data": 2,
        "grpc.http2.min_ping_interval_without_data_ms": 300000,
        "grpc.http2.max_ping_strikes": 2,
        "grpc.max_connection_age_ms": 5000,
    }
