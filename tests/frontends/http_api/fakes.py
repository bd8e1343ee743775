"""The HTTP application in this process, and what stands behind it."""

from __future__ import annotations

import asyncio
from typing import Any

from falcon.testing import ASGIConductor, Result

from tests.frontends import fake_gateway
from tests.frontends.fake_gateway import tensor_config, version_info
from zmqtriton import addons
from zmqtriton.options import Options
from zmqtriton_frontends.http_api import app
from zmqtriton_frontends.http_api.asgi.access import AccessRules

SETTINGS: dict[str, Any] = {
    "http_workers": 1,
    "grpc_processes": 1,
    "offers": addons.offers_in_use(Options().value),
    "started_at": 1_700_000_000,
}

MODELS = (
    version_info(),
    version_info("strings", "STRING"),
    version_info("booleans", "BOOL"),
    version_info("integers", "INT32"),
    version_info("unsigned", "UINT64"),
    version_info("halves", "FP16"),
    version_info("brains", "BF16"),
    version_info("decoupled", decoupled=True),
    version_info(
        "batching",
        max_batch_size=8,
        input=[tensor_config("INPUT0", "FP32", [2]), tensor_config("INPUT1", "FP32", [2])],
    ),
    version_info("rows", max_batch_size=8, input=[tensor_config("INPUT0", "FP32", [3, -1])]),
)


async def room_for_all(size: int) -> None:
    """There is room for everything."""


class FakeGateway(fake_gateway.FakeGateway):
    """Has models of many kinds."""

    ROLE = "http"

    def __init__(self, **settings: Any) -> None:
        super().__init__(MODELS, {**SETTINGS, **settings})


class Client:
    """Asks the application in this process; each request has a loop of its own, closed after it."""

    def __init__(self, gateway: FakeGateway) -> None:
        self._gateway: Any = gateway
        self._app: Any = None

    def request(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Result:
        async def simulate() -> Result:
            if self._app is None:  # in a loop: tokens are watched in one
                access = AccessRules(self._gateway.settings)
                self._app = app.build(self._gateway, app.routes(self._gateway), access)
            async with ASGIConductor(self._app) as conductor:
                result = await conductor.simulate_request(method, path, body=body, headers=headers)
            return result

        return asyncio.run(simulate())
