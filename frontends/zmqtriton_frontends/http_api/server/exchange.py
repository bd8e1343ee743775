"""The interface between a connection and the exchange on it, and the count of answers by status.

An exchange is one request and its answer: an inference, or a request of the Falcon application. The
connection gives it the body as it comes; it writes to the connection's channel, and says when all
of the answer is written.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Protocol

from zmqtriton_frontends.http_api.server.channel import Channel
from zmqtriton_frontends.inference.open_sequences import OpenSequences
from zmqtriton_frontends.process.ledger import Client
from zmqtriton_frontends.process.turns import Cost, WorkTurn
from zmqtriton_frontends.tensors.arena_body import ArenaBody

by_status: defaultdict[int, int] = defaultdict(int)


def counts() -> dict[str, int]:
    return {str(status): count for status, count in by_status.items()}


class Exchange(Protocol):
    has_begun_answer: bool
    #: The connection may receive the body there; None if receive() takes it.
    arena_body: ArenaBody | None = None

    @property
    def held_bytes(self) -> int:
        """The memory of this process that it takes."""

    def say_continue(self) -> None:
        """Tell a client that waits for it to send the body."""

    def receive(self, part: bytes, /, *, is_last: bool) -> None:
        """Take more of the body; begin to answer after the last part."""

    def body_received(self, *, is_last: bool) -> None:
        """Take note that more of the body lies in `arena_body`; begin to answer after the last."""
        raise AssertionError("receive() takes it")

    def cancel(self) -> None:
        """Cancel it: nobody waits for the answer any more."""


class Owner(Protocol):
    """The connection."""

    channel: Channel
    is_closed: bool
    #: The client, for what is held for it.
    client: Client
    #: What has been done for it lately.
    cost: Cost
    #: Its turns at the loop.
    turn: WorkTurn
    #: Those that it has begun.
    sequences: OpenSequences

    @property
    def last_fields(self) -> bytes:
        """The fields that every answer has."""

    def answered(self) -> None:
        """Take note that the answer to the request was written."""

    def leave(self) -> None:
        """Leave: the next answer is the last."""

    def hand_over(self, protocol: asyncio.Protocol) -> None:
        """Give the socket to another protocol: no HTTP follows."""
