"""The whole HTTP side in this process, on real connections; behind its gateway is nobody.

play(scenario, http_restricted_api=[...])
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

from tests.frontends.http_api.connection_harness import ConnectionHarness
from tests.frontends.http_api.fakes import FakeGateway
from zmqtriton_frontends.http_api import app
from zmqtriton_frontends.http_api.asgi.access import AccessRules
from zmqtriton_frontends.process.ledger import Ledger


class HttpHarness:
    """One server, and how many of its requests went to Falcon."""

    def __init__(self, *, ledger_bytes: int = 1 << 30, **settings: Any) -> None:
        gateway: Any = FakeGateway(**settings)
        self.gateway: FakeGateway = gateway
        self.falcon_requests = 0
        table, access = app.routes(gateway), AccessRules(gateway.settings)
        self._falcon: Any = app.build(gateway, table, access)
        self.connections = ConnectionHarness(app.inference_heads(gateway, table, access))
        self.connections.ledger = Ledger(ledger_bytes)
        self.connections.application = self._ask_falcon  # type: ignore[method-assign]

    async def _ask_falcon(self, scope: Any, receive: Any, send: Any) -> None:
        self.falcon_requests += 1
        await self._falcon(scope, receive, send)


Scenario = Callable[[HttpHarness], Awaitable[None]]


def run_scenario(scenario: Scenario, **settings: Any) -> None:
    """The settings are those of House too."""

    async def all_of_it() -> None:
        house = HttpHarness(**settings)
        async with house.connections.serve():
            await asyncio.wait_for(scenario(house), 20)

    uvloop.run(all_of_it())
