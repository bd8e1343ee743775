"""Hostile gRPC clients: refused, bounded, and no other client's trouble."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import psutil
import pytest
import tritonclient.grpc as triton

from tests.faults.grpc_load import cancel_streams, metrics_of
from tests.faults.requests import INFER, SERVICE, STREAM, tokens
from tests.support import raw_http2 as h2
from tests.support.clients import infer_inputs
from tests.support.process_memory import peak_mib
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = [pytest.mark.system, pytest.mark.server(models=["identity_fp32", "tokens"])]

FLOOD = 5000
#: Less than what these attacks would make a server without limits keep.
SLACK_MIB = 200
LIVE = SERVICE + "ServerLive"


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    """After each attack all processes are the same, no larger, and others are served."""
    be_served(running)
    pids = running.pids()
    peak = peak_mib(running, "grpc")
    yield running
    be_served(running)
    eventually(lambda: pids == running.pids(), 60, f"{pids} are all that runs")
    assert peak_mib(running, "grpc") <= peak + SLACK_MIB
    assert "Traceback" not in running.log_text()


def be_served(server: Server) -> None:
    """As another client is, whatever the attack does meanwhile."""
    [entry] = infer_inputs(triton, INPUT0=np.array([1, 2], np.float32))
    with triton.InferenceServerClient(server.grpc_address) as client:
        answer = client.infer("identity_fp32", [entry], client_timeout=30)
        assert [1.0, 2.0] == answer.as_numpy("OUTPUT0").tolist()


def descriptors(server: Server) -> int:
    return sum(psutil.Process(pid).num_fds() for pid in server.pids()["grpc"])


def status(number: int) -> bytes:
    """As it stands in the first trailers of a connection."""
    digits = str(number).encode()
    return b"\x0bgrpc-status" + bytes([len(digits)]) + digits


def test_frames_by_hand_are_understood(server: Server) -> None:
    # That the floods below are refused for what they are.
    with h2.Connection(server.grpc_port) as connection:
        connection.send(h2.headers_frame(1, LIVE), h2.data_frame(1, b"", flags=h2.END_STREAM))

        assert status(0) in connection.read_until(status(0))


# ---------------------------------------------------------------------- floods


def _resets_of_requests() -> Iterator[bytes]:
    request = tokens(100).SerializeToString()
    for number in range(FLOOD):
        stream = 2 * number + 1
        yield (
            h2.headers_frame(stream, STREAM)
            + h2.data_frame(stream, request)
            + h2.reset_frame(stream)
        )


def _continuations() -> Iterator[bytes]:
    yield h2.headers_frame(1, INFER, flags=0)
    pair = b"\x00\x01a" + b"\x7f\x00" + b"b" * 127
    for _ in range(FLOOD):
        yield h2.frame(h2.CONTINUATION, 0, 1, pair * 8)


def _hpack_bomb() -> Iterator[bytes]:
    value = b"v" * 3900
    length = b"\x7f" + bytes([(len(value) - 127) & 0x7F | 0x80, (len(value) - 127) >> 7])
    into_the_table = b"\x40\x01a" + length + value
    newest_of_the_table = b"\xbe"
    block = h2.header_block(INFER) + into_the_table + newest_of_the_table * 8000
    for number in range(20):
        yield h2.frame(h2.HEADERS, h2.END_HEADERS, 2 * number + 1, block)


FLOODS = {
    "resets of requests": _resets_of_requests,
    "continuations": _continuations,
    "a bomb of headers": _hpack_bomb,
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_of_frames_is_no_other_clients_trouble(server: Server, name: str) -> None:
    before = descriptors(server)

    with h2.Connection(server.grpc_port) as connection:
        for one in FLOODS[name]():
            if not connection.send(one):
                break
        be_served(server)

    eventually(lambda: descriptors(server) <= before, 30, "connections closed")


# --------------------------------------------------------- what stays and waits


def test_streams_that_are_cancelled_at_any_moment_leave_no_request(server: Server) -> None:
    cancel_streams(server, 30, 0.02)

    eventually(
        lambda: metrics_of(server)["zmqtriton_unanswered_requests"] == 0, 30, "all is answered"
    )
