"""Blocks of others that are no longer read here, on their way to the broker."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable

from zmqtriton_floor import wire
from zmqtriton_floor.wire import Block

#: A release waits this long for a message to travel with, unless many wait.
_SEND_AFTER_S = 0.003
_MAX_WAITING = 8


class Releases:
    """Collects blocks and sends them together. `add` is safe for threads and destructors."""

    def __init__(self, send: Callable[[wire.Release], None]) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        #: Those that wait. Filled from any thread: arrays end wherever the garbage collector runs,
        #: in one of gRPC's too.
        self.blocks: deque[Block] = deque()
        self._timer: asyncio.Handle | None = None
        self._has_ended = False

    def add(self, blocks: list[Block]) -> None:
        """Release blocks soon."""
        if self._has_ended:
            return  # the broker releases what a process has that has left
        self.blocks.extend(blocks)
        if threading.get_ident() != self._thread:
            with contextlib.suppress(RuntimeError):  # the loop is being closed at this moment
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
            self._send(wire.Release(blocks))

    def take(self) -> list[list[Block]]:
        """Return what to release now, for a message each.

        The timer stays: for the next ones, since it costs more than finding nothing.
        """
        taken, blocks = [], self.blocks
        while blocks:
            some: list[Block] = []
            while blocks and len(some) < wire.MAX_RELEASED:
                some.append(blocks.popleft())
            taken.append(some)
        return taken

    def end(self) -> None:
        """Send nothing more; arrays may be dropped at any time after."""
        self._has_ended = True
        self.close()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
