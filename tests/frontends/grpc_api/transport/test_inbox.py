"""Bytes of a client that wait for its turn."""

from __future__ import annotations

from types import SimpleNamespace

from tests.frontends.http2.talk import Talk
from tests.support import raw_http2 as h2
from tests.support.shares import share_of
from zmqtriton_frontends.grpc_api.transport.inbox import Inbox
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
