"""Measures the turns of this process's loop, and reports them to the supervisor.

Neither asyncio nor uvloop shows its turns. So the loop has a call at fixed times: the turn that
keeps it from one has lasted for as long as that comes late.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.process.loop_turns import LoopTurns

VERB = "turns"

_BEAT_S = 0.1
_REPORT_EVERY_NS = 1_000_000_000

Call = Callable[[str, dict[str, Any]], Awaitable[Any]]


class LoopWatch:
    """To be made on the loop, when clients may wait for it; `call` asks the supervisor."""

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
            await self._call(VERB, document)
        self._reporting = None

    def close(self) -> None:
        self._timer.cancel()
        if self._reporting is not None:
            self._reporting.cancel()
