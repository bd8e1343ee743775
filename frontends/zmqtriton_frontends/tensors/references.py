"""References to the parts of requests and responses that are, or will be, in shared memory.

Opens nothing. Blocks of other processes that are no longer read here are released through the
broker.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from zmqtriton_floor.arena import block_of
from zmqtriton_floor.errors import ProtocolError
from zmqtriton_floor.wire import (
    MAX_RELEASED,
    Block,
    Reference,
    Release,
    ResponseBody,
    decode_response,
    references_in,
)

#: Seconds that a release waits for a message to travel with, unless more blocks wait than this
#: number.
_SEND_AFTER_S = 0.003
_MAX_WAITING = 8


def has_references(response: ResponseBody) -> bool:
    for tensor in response.outputs:  # noqa: SIM110 - any() calls a generator for each
        if type(tensor.data) is Reference:
            return True
    return False


class PlacedBody(bytes):
    """The body of a response whose references the broker has checked."""

    __slots__ = ()


def read_response(body: bytes, *, has_places: bool = False) -> ResponseBody:
    """Read a response. Raises ProtocolError if it is malformed or has unchecked references.

    Outputs without data are right if the request `has_places`.
    """
    may_refer = type(body) is PlacedBody
    return decode_response(body, may_refer=may_refer, has_places=has_places)


def size_of(body: bytes) -> int:
    """Return the memory that a response takes: its body, and the blocks that it refers to."""
    size = len(body)
    if type(body) is PlacedBody:
        with suppress(ProtocolError):
            size += sum(reference.size for reference in _references_in(body))
    return size


def blocks_of(data: bytes) -> list[Block]:
    """Return the blocks that a response refers to, by its body."""
    return [block_of(reference) for reference in _references_in(data)] if data else []


def _references_in(body: bytes) -> list[Reference]:
    return references_in(decode_response(body, has_places=True).outputs)


class Releases:
    """Collects blocks and sends them together. `add` is safe for threads and destructors."""

    def __init__(self, send: Callable[[Release], None]) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        #: Blocks that wait to be released. Filled from any thread: arrays end wherever the garbage
        #: collector runs, in one of gRPC's too.
        self.blocks: deque[Block] = deque()
        self._timer: asyncio.Handle | None = None
        self._has_ended = False

    def add(self, blocks: list[Block]) -> None:
        """Release blocks soon, together with others."""
        if self._has_ended:
            return  # the broker releases what a process has that has left
        self.blocks.extend(blocks)
        if threading.get_ident() != self._thread:
            with suppress(RuntimeError):  # the loop is being closed at this moment
                self._loop.call_soon_threadsafe(self._send_all)
        elif len(self.blocks) > _MAX_WAITING:
            self._send_in(0)
        elif self._timer is None:
            self._send_in(_SEND_AFTER_S)

    def _send_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._send_all()

    def _send_all(self) -> None:
        for blocks in self.take():
            self._send(Release(blocks))

    def take(self) -> list[list[Block]]:
        """Return the blocks to release now, in a list for each message.

        The timer is kept for later blocks: a new one would cost more than a call without blocks.
        """
        taken, blocks = [], self.blocks
        while blocks:
            some: list[Block] = []
            while blocks and len(some) < MAX_RELEASED:
                some.append(blocks.popleft())
            taken.append(some)
        return taken

    def end(self) -> None:
        """Send nothing more; arrays may still be dropped at any later time."""
        self._has_ended = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
