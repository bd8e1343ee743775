"""A frontend's end of its lifeline, on its asyncio loop."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_floor.process.loop_turns import LoopTurns

_BEAT_S = 0.1
_REPORT_EVERY_NS = 1_000_000_000

Call = Callable[[str, dict[str, Any]], Awaitable[Any]]


class LoopWatch:
    """Measures the turns of the loop, from a time when clients may wait for it.

    `call` calls the supervisor. Neither asyncio nor uvloop shows its turns, so the loop calls this
    object at fixed times: a turn has lasted for as long as a call comes late.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Call) -> None:
        self._loop = loop
        self._call = call
        self._turns = LoopTurns()
        self._reported: dict[str, Any] = {}
        self._report_from_ns = 0
        self._reporting: asyncio.Task[None] | None = None
        self._due_ns = time.monotonic_ns()
        self._turns.watch()
        self._timer = loop.call_soon(self._beat)

    def _beat(self) -> None:
        now_ns = time.monotonic_ns()
        next_ns = now_ns + int(_BEAT_S * 1e9)
        self._turns.beat(self._due_ns, next_ns)
        self._due_ns = next_ns
        self._timer = self._loop.call_later(_BEAT_S, self._beat)
        if now_ns >= self._report_from_ns and self._reporting is None:
            self._report_from_ns = now_ns + _REPORT_EVERY_NS
            document = self._turns.document()
            if document != self._reported:
                self._reported = document
                self._reporting = self._loop.create_task(self._report(document))

    async def _report(self, document: dict[str, Any]) -> None:
        with suppress(ZmqTritonError):  # the server ends
            await self._call("turns", document)
        self._reporting = None

    def close(self) -> None:
        self._turns.end_watch()
        self._timer.cancel()
        if self._reporting is not None:
            self._reporting.cancel()


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
        #: Watch of the loop's turns; None until clients wait for the loop.
        self._loop_watch: LoopWatch | None = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        loop.add_reader(self._lifeline.fileno(), self._read)
        self._read()

    def send(self, message: Any) -> None:
        self._lifeline.send(message)
        if self._lifeline.is_backed_up:
            self._loop.add_writer(self._lifeline.fileno(), self._write)

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
