"""Reports about clients to the supervisor."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from tests.support.scenarios import scenario
from zmqtriton_floor.errors import Unavailable
from zmqtriton_frontends.gateway.client_report import VERB, ClientReport
from zmqtriton_frontends.process.ledger import Ledger, Share


async def checked(report: ClientReport) -> None:
    report.check()
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_figures_are_told_when_they_have_changed() -> None:
    calls: list[tuple[str, str, int]] = []

    async def call(verb: str, figures: dict[str, Any]) -> None:
        calls.append((verb, figures["role"], figures["memory"]["requests_bytes"]))

    async def scenario() -> None:
        ledger = Ledger(1 << 20)
        report, share = ClientReport(call, "http", ledger), Share(ledger.requests)
        for size in (0, 100, 0, -100, 0):
            share.add(size)
            await checked(report)

    asyncio.run(scenario())
    assert [(VERB, "http", 100), (VERB, "http", 0)] == calls


def test_counters_of_the_protocol_are_told() -> None:
    messages: list[dict[str, Any]] = []

    async def call(verb: str, figures: dict[str, Any]) -> None:
        messages.append(figures)

    async def scenario() -> None:
        responses: Counter[str] = Counter()
        report = ClientReport(
            call, "http", connections=lambda: 3, counts=lambda: {"responses": responses}
        )
        await checked(report)
        responses["404"] += 1
        await checked(report)

    asyncio.run(scenario())
    expected = {"role": "http", "memory": {}, "connections": 3, "counts": {"responses": {"404": 1}}}
    assert [expected] == messages


@scenario(asyncio.run)
async def test_a_server_that_ends_need_not_know() -> None:
    async def call(verb: str, figures: dict[str, Any]) -> None:
        raise Unavailable("the server ends")

    ledger = Ledger(1 << 20)
    report, share = ClientReport(call, "http", ledger), Share(ledger.answers)
    for _ in range(3):
        share.add(1)
        await checked(report)
