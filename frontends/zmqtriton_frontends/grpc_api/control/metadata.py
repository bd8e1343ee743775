"""Health, metadata, configurations and statistics of the server and its models.

The catalogue knows all but the counters, which are the broker's. Health is Triton's three RPCs and
the standard service: an answer never waits for the broker, nor for a model without an is_ready. For
watchers, models that have one are asked once a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from zmqtriton_floor.errors import InternalError
from zmqtriton_frontends.access.bearer_tokens import check_model, may_see
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.gateway.readiness import Readiness
from zmqtriton_frontends.grpc_api.call import RpcCall
from zmqtriton_frontends.grpc_api.control.reading import read
from zmqtriton_frontends.grpc_api.inference.convert import serialize
from zmqtriton_frontends.grpc_api.inference.response import field
from zmqtriton_frontends.inference.catalogue import Catalogue
from zmqtriton_frontends.process.futures import Tasks
from zmqtriton_protos import message

#: ModelConfigResponse.config: field 1, a message.
_CONFIG = b"\x0a"
_CHECK_REQUEST = message("grpc.health.v1.HealthCheckRequest")

#: Seconds between two checks of a watched readiness; what watchers see is as old as this.
_LOOK_S = 0.1
#: Seconds between two questions to models with an is_ready.
_ASK_S = 1.0


class Health:
    """ServerLive, ServerReady, ModelReady; grpc.health.v1's Check and Watch."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._readiness = Readiness(gateway)
        #: The status that each watcher has been sent.
        self._statuses: dict[object, bool | None] = {}
        #: The last answer of models with an is_ready, and the tasks that ask them and look while
        #: there are watchers.
        self._models_say = True
        self._tasks = Tasks()
        #: Done when the status may be news to a watcher.
        self._news: asyncio.Future[None]

    async def live(self, _request: Any, _call: RpcCall) -> dict[str, bool]:
        return {"live": not self._gateway.catalogue.is_repository_missing}

    async def ready(self, _request: Any, _call: RpcCall) -> dict[str, bool]:
        return {"ready": await self._readiness.of_server()}

    async def model_ready(self, request: Any, call: RpcCall) -> dict[str, bool]:
        check_model(call.grant, request.name)
        return {"ready": await self._readiness.of_model(request.name, request.version)}

    async def check(self, data: bytes, _call: RpcCall) -> bytes:
        read(_CHECK_REQUEST, data)  # Triton ignores which service is asked for
        return _status(await self._readiness.of_server())

    async def watch(
        self, requests: AsyncIterator[bytes], _call: RpcCall
    ) -> AsyncGenerator[bytes, None]:
        """Send the status now and at each change after one request; end when the server stops."""
        async for data in requests:
            read(_CHECK_REQUEST, data)
            break
        else:
            raise InternalError("the request is missing")
        watcher = object()
        is_first = not self._statuses
        self._statuses[watcher] = None
        try:
            if is_first:
                self._news = asyncio.get_running_loop().create_future()
                self._tasks.begin(self._look())
                self._tasks.begin(self._go_on_asking())
                await self._ask_models()
            while True:
                is_ending = self._gateway.is_ending
                ready = self._is_ready()
                if ready != self._statuses[watcher]:
                    self._statuses[watcher] = ready
                    yield _status(ready)
                if is_ending:
                    return
                # shielded: one watcher that is cancelled must not cancel what the others wait for
                await asyncio.shield(self._news)
        finally:
            del self._statuses[watcher]
            if not self._statuses:
                self._tasks.close()

    def _is_ready(self) -> bool:
        is_ready = not self._gateway.is_stopping and self._gateway.catalogue.is_ready()
        return is_ready and (
            self._models_say or not self._gateway.catalogue.generations_with_is_ready()
        )

    async def _go_on_asking(self) -> None:
        while True:
            await asyncio.sleep(_ASK_S)
            await self._ask_models()

    async def _ask_models(self) -> None:
        catalogue = self._gateway.catalogue
        if catalogue.generations_with_is_ready() and catalogue.is_ready():
            self._models_say = await self._readiness.of_server()

    async def _look(self) -> None:
        """Wake the watchers at each change: one look for all, and none of them runs before."""
        while True:
            await asyncio.sleep(_LOOK_S)
            if {*self._statuses.values()} != {self._is_ready()} or self._gateway.is_ending:
                news, self._news = self._news, asyncio.get_running_loop().create_future()
                news.set_result(None)


def _status(is_ready: bool) -> bytes:
    status = "SERVING" if is_ready else "NOT_SERVING"
    return serialize(message("grpc.health.v1.HealthCheckResponse")(status=status))


async def server_metadata(gateway: Gateway, _request: Any, _call: RpcCall) -> dict[str, Any]:
    server = gateway.settings.server
    return {
        "name": server.id,
        "version": server.server_version,
        "extensions": server.extensions,
    }


async def model_metadata(gateway: Gateway, request: Any, call: RpcCall) -> dict[str, Any]:
    check_model(call.grant, request.name)
    catalogue = gateway.catalogue
    return await catalogue.attempt(lambda: catalogue.metadata(request.name, request.version))


async def model_config(gateway: Gateway, data: bytes, call: RpcCall) -> bytes:
    """Answer with the bytes that the supervisor has made."""
    request = read(message("inference.ModelConfigRequest"), data)
    check_model(call.grant, request.name)
    catalogue = gateway.catalogue
    model = await catalogue.attempt(lambda: catalogue.find(request.name, request.version))
    return field(_CONFIG, model.config_proto)


async def model_statistics(gateway: Gateway, request: Any, call: RpcCall) -> dict[str, Any]:
    if request.name:
        check_model(call.grant, request.name)
    gateway.catalogue.check_counted(request.name, request.version)
    is_one = request.name and request.version
    version = Catalogue.parse_version(request.version) if is_one else -1
    answer = await gateway.statistics(request.name, version)
    return {"model_stats": [s for s in answer["model_stats"] if may_see(call.grant, s["name"])]}
