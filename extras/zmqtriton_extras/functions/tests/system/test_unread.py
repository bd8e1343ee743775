"""Streams that are not read: they stop their source, and others are served beside them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from tests.support.loops.long_turns import long_turns
from tests.support.raw_http import raw_request
from tests.support.server import Server
from zmqtriton_extras.functions.tests import bench_unread
from zmqtriton_extras.functions.tests.system.many_streams import Client, Journal

pytestmark = pytest.mark.system

_FEW, _MANY = 1100, 1500


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("unread")
    server = Server(directory / "server")
    journal = Journal(directory)
    bench_unread.prepare(server)
    server.write_model("count", "", journal.source())
    with server:
        yield server


def test_a_stream_that_is_not_read_stops_after_few_pieces(server: Server) -> None:
    journal = Journal(server.directory.parent)
    with socket.socket() as unread:
        unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        unread.connect(("127.0.0.1", server.http_port))
        path = "/v2/models/count/generate_stream"
        unread.sendall(raw_request("POST", path, b'{"name": "unread", "size": 64}'))
        reader = Client(server, "count", "read", size=64)

        # as many again as the stream that is not read could have had until it stopped
        assert _MANY == len(list(islice(reader.read(), _MANY)))
        steps = journal.steps().values()
        reader.leave()

    assert 0 < sum("unread" in names for names in steps) < _FEW


@pytest.mark.parametrize("attack", ["not read", "WebSockets, not read", "gRPC, idle"])
def test_others_are_answered_beside_streams_that_are_not_read(server: Server, attack: str) -> None:
    with bench_unread.attacking(server, attack, 3.0):
        waits = bench_unread.ask_beside(server, 2.0)

    # neither address, nor kind of request, has had its turns at the cost of another
    counts = {key: len(each) for key, each in waits.items()}
    assert {*bench_unread.ASKS} == {*counts}
    assert min(counts.values()) > max(counts.values()) / 10, counts
    assert [] == long_turns(server.log_text())
