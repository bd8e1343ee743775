"""Reports of clients' memory to the supervisor."""

from __future__ import annotations

import asyncio
from typing import Any

from zmqtriton_floor.errors import Unavailable
from zmqtriton_frontends.gateway.client_memory import VERB, ClientMemoryReport
from zmqtriton_frontends.process.ledger import Ledger, Share


def test_figures_are_told_when_they_have_changed() -> None:
    calls: list[tuple[str, int]] = []

    async def call(verb: str, figures: dict[str, Any]) -> None:
        calls.append((verb, figures["requests_bytes"]))

    async def scenario() -> None:
        ledger = Ledger(1 << 20, give_back=lambda: None)
        report, share = ClientMemoryReport(call, ledger), Share(ledger.requests)
        for size in (0, 100, 0, -100, 0):
            share.add(size)
            report.check()
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    asyncio.run(scenario())
    assert [(VERB, 100), (VERB, 0)] == calls


def test_a_server_that_ends_need_not_know() -> None:
    async def call(verb: str, figures: dict[str, Any]) -> None:
        raise Unavailable("the server ends")

    async def scenario() -> None:
        ledger = Ledger(1 << 20, give_back=lambda: None)
        report, share = ClientMemoryReport(call, ledger), Share(ledger.answers)
        for _ in range(3):
            share.add(1)
            report.check()
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    asyncio.run(scenario())
