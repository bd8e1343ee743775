"""Reports this process's clients to the supervisor, for metrics and the status.

Once a second at most: the memory that clients take, their number, and counters of the protocol. A
request itself adds only to counters of this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_frontends.process.ledger import Ledger

VERB = "clients"

Call = Callable[[str, dict[str, Any]], Awaitable[Any]]
#: Counters by name, each by the value of its label.
Counts = Mapping[str, Mapping[str, int]]


class ClientReport:
    def __init__(
        self,
        call: Call,
        role: str,
        ledger: Ledger | None = None,
        *,
        connections: Callable[[], int] = int,
        counts: Callable[[], Counts] = dict,
    ) -> None:
        """Set up; `call` calls the supervisor, `connections` returns the number of open ones."""
        self._call = call
        self._role = role
        self._ledger = ledger
        self._connections = connections
        self._counts = counts
        self._figures = self._read()
        self._telling: asyncio.Task[None] | None = None

    def _read(self) -> dict[str, Any]:
        return {
            "role": self._role,
            "memory": {} if self._ledger is None else self._ledger.figures(),
            "connections": self._connections(),
            "counts": {name: dict(values) for name, values in self._counts().items()},
        }

    def check(self) -> None:
        """Report the figures if they have changed; called once a second."""
        if self._ledger is not None:
            self._ledger.check()
        figures = self._read()
        if figures != self._figures and self._telling is None:
            self._figures = figures
            self._telling = asyncio.get_running_loop().create_task(self._tell(figures))

    async def _tell(self, figures: dict[str, Any]) -> None:
        with suppress(ZmqTritonError):  # the server ends, and so do its metrics
            await self._call(VERB, figures)
        self._telling = None
