"""Bytes of a client that wait for its turn."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.frontends.http2.talk import Heard, Talk
from tests.support import raw_http2 as h2
from zmqtriton_frontends.grpc_api.transport.inbox import Inbox
from zmqtriton_frontends.process.ledger import Book, Share
from zmqtriton_frontends.process.turns import Turns

pytestmark = pytest.mark.slow


class Transport:
    is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def is_closing(self) -> bool:
        return False


def test_bytes_that_somebody_still_refers_to_are_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The frames of an error do, for as long as that is kept."""
    talk, transport = Talk(), Transport()
    talk.open(1)
    parts, rounds = list[tuple[bytes, memoryview]](), list[Callable[[], None]]()
    monkeypatch.setattr(Heard, "on_data", lambda self, data: parts.append((bytes(data), data)))
    turns = Turns(rounds.append, clock=lambda: 0.0)
    inbox = Inbox(turns, "", Share(Book()), talk.connection, transport, lambda: None)

    for text in (b"first", b"second"):
        inbox.kept += h2.data_frame(1, text)
        inbox.resume()
        rounds.pop()()

    assert [b"first", b"second"] == [data[5:] for data, _ in parts]
    assert transport.is_reading
    inbox.kept += b"third"
    inbox.close()
    assert not inbox.kept
