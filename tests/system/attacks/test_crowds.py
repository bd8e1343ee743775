"""More connections than there may be, whose clients send half a request and stop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
import tritonclient.grpc as triton

from tests.support import raw_http2 as h2
from tests.support.needs import find_tool
from tests.support.server import Server
from tests.support.waiting import eventually
from tests.system.attacks.connections import INFER, connect, is_served

pytestmark = pytest.mark.system

STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
#: Of each process, which keeps a hundred for itself.
DESCRIPTORS = 220
CROWD = 160


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("crowds")
    server = Server(directory / "s", models=["identity_fp32"], frontends=("grpc",))
    prlimit = find_tool("prlimit", package="util-linux")
    server.wrapper = (prlimit, f"--nofile={DESCRIPTORS}:{DESCRIPTORS}")
    with server:
        yield server


def is_live(server: Server) -> bool:
    with triton.InferenceServerClient(server.grpc_address) as client, suppress(Exception):
        return bool(client.is_server_live(client_timeout=2))
    return False


def test_a_crowd_that_stops_amid_its_requests_keeps_nobody_out(server: Server) -> None:
    half = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n12345678".encode()
    with ExitStack() as stack:
        for _ in range(CROWD):
            connect(server, stack, half)
            with suppress(OSError):  # the server refuses some
                crowd = h2.Connection(server.grpc_port)
                stack.callback(crowd.close)
                crowd.send(h2.headers_frame(1, STREAM))

        eventually(lambda: is_live(server), 30, "gRPC has room")
        for _ in range(8):
            assert is_live(server)
            assert is_served(server)
