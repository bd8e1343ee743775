"""Health, metadata, configuration, statistics, and load of the server and its models."""

from __future__ import annotations

import falcon.asgi

from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_frontends.access.bearer_tokens import may_see
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.gateway.readiness import Readiness
from zmqtriton_frontends.http_api.asgi.request import HttpRequest
from zmqtriton_frontends.http_api.inference import json_documents
from zmqtriton_frontends.inference import load_metrics


class Metadata:
    """Responders for health, metadata, statistics and load.

    Only statistics, the load, and the readiness of models with an is_ready, involve other
    processes.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._readiness = Readiness(gateway)

    async def live(self, req: HttpRequest, resp: falcon.asgi.Response) -> None:
        if self._gateway.catalogue.is_repository_missing:
            resp.status = falcon.HTTP_400
        else:
            resp.data = _answer(req, "live")

    async def ready(self, req: HttpRequest, resp: falcon.asgi.Response) -> None:
        problem = await self._readiness.why_not_of_server()
        if problem:
            raise InvalidArgument(problem)
        resp.data = _answer(req, "ready")

    async def model_ready(
        self, req: HttpRequest, resp: falcon.asgi.Response, model: str, version: str = ""
    ) -> None:
        if not await self._readiness.of_model(model, version):
            raise InvalidArgument("Model version not ready")

    async def server(self, req: HttpRequest, resp: falcon.asgi.Response) -> None:
        settings = self._gateway.settings
        resp.data = json_documents.write(
            {
                "name": settings.server.id,
                "version": settings.server.server_version,
                "extensions": settings.server.extensions,
            }
        )

    async def model(
        self, req: HttpRequest, resp: falcon.asgi.Response, model: str, version: str = ""
    ) -> None:
        catalogue = self._gateway.catalogue
        resp.data = json_documents.write(
            await catalogue.attempt(lambda: catalogue.metadata(model, version))
        )

    async def config(
        self, req: HttpRequest, resp: falcon.asgi.Response, model: str, version: str = ""
    ) -> None:
        model_version = await self._gateway.catalogue.attempt(
            lambda: self._gateway.catalogue.find(model, version)
        )
        resp.data = model_version.config_text.encode()

    async def statistics(
        self, req: HttpRequest, resp: falcon.asgi.Response, model: str = "", version: str = ""
    ) -> None:
        self._gateway.catalogue.check_counted(model, version)
        answer = await self._gateway.statistics(model, int(version or -1))
        resp.data = json_documents.write(
            {
                # without the figures that the broker adds for the metrics process
                "model_stats": [
                    {key: value for key, value in s.items() if key != "zmqtriton"}
                    for s in answer["model_stats"]
                    if may_see(req.grant, s["name"])
                ]
            }
        )

    async def server_load(self, req: HttpRequest, resp: falcon.asgi.Response) -> None:
        self._gateway.catalogue.check_serving()
        answer = await self._gateway.statistics(kind=wire.LOAD)
        is_ready = await self._readiness.of_server()
        load = load_metrics.of_server(answer)
        load["models"] = [m for m in load["models"] if may_see(req.grant, m["name"])]
        resp.data = json_documents.write({"ready": is_ready, **load})

    async def model_load(
        self, req: HttpRequest, resp: falcon.asgi.Response, model: str, version: str = ""
    ) -> None:
        """Return the load of one version, or of all serving versions together."""
        self._gateway.catalogue.check_counted(model, version)
        answer = await self._gateway.statistics(model, int(version or -1), kind=wire.LOAD)
        is_ready = await self._readiness.of_model(model, version)
        load = load_metrics.of_model(answer["loads"])
        named = {"name": model, "version": version} if version else {"name": model}
        resp.data = json_documents.write({**named, "ready": is_ready, **load})


def _answer(req: HttpRequest, state: str) -> bytes | None:
    """Return KServe's document, such as `{"live": true}`, for a client that sends Accept.

    Other clients get an empty body, as from Triton.
    """
    return json_documents.write({state: True}) if req.header(b"accept") else None
