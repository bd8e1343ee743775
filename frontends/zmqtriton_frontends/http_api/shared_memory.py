"""The shared memory extensions: register, unregister, status. The supervisor does it; this asks.

No GPU memory can be registered, which the supervisor says in Triton's words.
"""

from __future__ import annotations

from typing import Any

import falcon.asgi

from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.http_api import documents
from zmqtriton_frontends.http_api.request import Request


class SharedMemory:
    """Responders for one kind: "system" or "cuda"."""

    def __init__(self, gateway: Gateway, kind: str) -> None:
        self._gateway = gateway
        self._kind = kind
        self._max_input_size: int = gateway.settings["http_max_input_size"]

    async def status(self, req: Request, resp: falcon.asgi.Response, region: str = "") -> None:
        resp.data = documents.write(await self._call("status", region))

    async def register(self, req: Request, resp: falcon.asgi.Response, region: str) -> None:
        body = await req.read_body(self._max_input_size)
        document = documents.parse(body) if body else {}
        if self._kind == "system":
            await self._call("register", region, **_read(document))
        else:
            await self._call("register", region)

    async def unregister(self, req: Request, resp: falcon.asgi.Response, region: str = "") -> None:
        await req.read_body(self._max_input_size)
        await self._call("unregister", region)

    async def _call(self, verb: str, region: str, **arguments: Any) -> Any:
        named = {"kind": self._kind, "name": region, **arguments}
        return await self._gateway.call(f"regions.{verb}", named)


def _read(document: Any) -> dict[str, Any]:
    """Key, offset and size. Raises InvalidArgument where one is missing or of another type."""
    given = document if type(document) is dict else {}
    for key in ("key", "byte_size"):
        if key not in given:
            raise InvalidArgument(f"Shared memory register request has no '{key}' field")
    if type(given["key"]) is not str:
        raise InvalidArgument("attempt to access JSON non-string as string")
    arguments = {"key": given["key"], "offset": 0}
    for key in ("offset", "byte_size"):
        value = given.get(key, 0)
        if type(value) is not int or value < 0:
            raise InvalidArgument("attempt to access JSON non-unsigned-integer as unsigned-integer")
        arguments[key] = value
    return arguments
