"""The repository extension: index, load and unload. The supervisor does it; this asks."""

from __future__ import annotations

from typing import Any

import falcon.asgi

from zmqtriton_floor.errors import InternalError, InvalidArgument, Unsupported
from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.http_api import documents
from zmqtriton_frontends.http_api.request import Request


class Repository:
    """Responders that return when the supervisor has done what was asked."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._max_input_size: int = gateway.settings["http_max_input_size"]

    async def index(self, req: Request, resp: falcon.asgi.Response, repository: str = "") -> None:
        ready = (await self._document(req)).get("ready", False)
        if type(ready) is not bool:
            raise InvalidArgument("attempt to access JSON non-boolean as boolean")
        resp.data = documents.write(await self._gateway.call("index", {"ready": ready}))

    async def load(self, req: Request, resp: falcon.asgi.Response, model: str) -> None:
        parameters = _parameters(await self._document(req))
        for key, value in parameters.items():
            if type(value) is not str:
                raise InvalidArgument("attempt to access JSON non-string as string")
            if key != "config" and not key.startswith("file:"):
                raise InternalError("unexpected error on creating Triton parameter")
        await self._gateway.call("load", {"model": model, "parameters": parameters})

    async def unload(self, req: Request, resp: falcon.asgi.Response, model: str) -> None:
        dependents = _parameters(await self._document(req)).get("unload_dependents", False)
        if type(dependents) is not bool:
            raise InvalidArgument(
                "Unable to parse 'unload_dependents': attempt to access JSON non-boolean as boolean"
            )
        await self._gateway.call("unload", {"model": model, "unload_dependents": dependents})

    async def named_repository(
        self, req: Request, resp: falcon.asgi.Response, repository: str, model: str
    ) -> None:
        raise Unsupported("'repository_name' specification is not supported")

    async def _document(self, req: Request) -> dict[str, Any]:
        """The body's object; an empty body is an empty one."""
        body = await req.read_body(self._max_input_size)
        document = documents.parse(body) if body else {}
        return document if type(document) is dict else {}


def _parameters(document: dict[str, Any]) -> dict[str, Any]:
    parameters = document.get("parameters", {})
    if type(parameters) is not dict:
        raise InvalidArgument("attempt to get members for non-object")
    return parameters
