"""Tells the supervisor what clients make this process hold, for metrics and the status."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_frontends.process.ledger import Ledger

VERB = "client_memory"

Call = Callable[[str, dict[str, Any]], Awaitable[Any]]


class ClientMemoryReport:
    def __init__(self, call: Call, ledger: Ledger) -> None:
        """Set up; `call` asks the supervisor."""
        self._call = call
        self._ledger = ledger
        self._figures = ledger.figures()
        self._telling: asyncio.Task[None] | None = None

    def check(self) -> None:
        """Tell the figures if they have changed. To be called once a second."""
        self._ledger.check()
        figures = self._ledger.figures()
        if figures != self._figures and self._telling is None:
            self._figures = figures
            self._telling = asyncio.get_running_loop().create_task(self._tell(figures))

    async def _tell(self, figures: dict[str, int]) -> None:
        with suppress(ZmqTritonError):  # the server ends, and so do its metrics
            await self._call(VERB, figures)
        self._telling = None
