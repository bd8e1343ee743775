"""A frontend's end of its lifeline, on its asyncio loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

from zmqtriton_floor import wire
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_frontends.gateway.loop_watch import Call, LoopWatch


class SupervisorLine:
    """Sends to the supervisor, and passes its messages on."""

    def __init__(
        self,
        lifeline: Lifeline,
        on_message: Callable[[Any, list[int]], None],
        on_end: Callable[[], None],
    ) -> None:
        """Set up; `on_message` gets a message and its descriptors, and removes those that it keeps.

        `on_end` is called when the supervisor is gone.
        """
        self._lifeline = lifeline
        self._on_message = on_message
        self._loop: asyncio.AbstractEventLoop
        self._on_end = on_end
        #: None as long as nobody waits for the loop.
        self._loop_watch: LoopWatch | None = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        loop.add_reader(self._lifeline.fileno(), self._read)
        self._read()

    def send(self, message: Any) -> None:
        self._lifeline.send(message)
        if self._lifeline.is_backed_up:
            self._loop.add_writer(self._lifeline.fileno(), self._write)

    def acknowledge(self, number: int, before: Callable[[], None]) -> None:
        """Confirm a Sync in the next turn, after all earlier messages.

        What was checked against older states is among that.
        """
        self._loop.call_soon(self._confirm, number, before)

    def _confirm(self, number: int, before: Callable[[], None]) -> None:
        before()
        self.send(wire.Synced(number))

    def _write(self) -> None:
        self._lifeline.flush()
        if not self._lifeline.is_backed_up:
            self._loop.remove_writer(self._lifeline.fileno())

    def _read(self) -> None:
        for message, descriptors in self._lifeline.receive():
            self._on_message(message, descriptors)
            for unexpected in descriptors:
                os.close(unexpected)
        if self._lifeline.ended:
            self._loop.remove_reader(self._lifeline.fileno())
            self._on_end()

    def watch_loop(self, call: Call) -> None:
        """Measure the turns of the loop from now on: clients wait for it."""
        if self._loop_watch is None:
            self._loop_watch = LoopWatch(self._loop, call)

    def close(self) -> None:
        if self._loop_watch is not None:
            self._loop_watch.close()
        self._loop.remove_reader(self._lifeline.fileno())
        self._lifeline.close()
