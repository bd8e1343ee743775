"""The shared memory extensions: register, unregister, status. The supervisor acts; this translates.

Memory of a GPU comes as a handle, which is judged by its form and opened by processes of models.
"""

from __future__ import annotations

import base64
from typing import Any

import falcon.asgi

from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.http_api.asgi.access import Route
from zmqtriton_frontends.http_api.asgi.request import Request
from zmqtriton_frontends.http_api.inference import json_documents
from zmqtriton_frontends.process.peer_user import user_of

#: The size of a cudaIpcMemHandle_t.
_HANDLE_BYTES = 64


class SharedMemory:
    """Responders for one kind: "system" or "cuda"."""

    def __init__(self, gateway: Gateway, kind: str) -> None:
        self._gateway = gateway
        self._kind = kind
        self._max_input_size: int = gateway.settings.http.max_input_size

    async def status(self, req: Request, resp: falcon.asgi.Response, region: str = "") -> None:
        resp.data = json_documents.write(await self._call("status", region))

    async def register(self, req: Request, resp: falcon.asgi.Response, region: str) -> None:
        body = await req.read_body(self._max_input_size)
        document = await json_documents.read(body, json_documents.parse)
        if self._kind == "system":
            arguments = {**_read(document), "user": await user_of(*req.ends)}
        else:
            arguments = _read_handle(document)
        await self._call("register", region, **arguments)

    async def register_nameless(self, req: Request, resp: falcon.asgi.Response) -> None:
        await req.read_body(self._max_input_size)
        raise InvalidArgument(
            f"'region name' is necessary to register {self._kind} shared memory region"
        )

    async def unregister(self, req: Request, resp: falcon.asgi.Response, region: str = "") -> None:
        await req.read_body(self._max_input_size)
        await self._call("unregister", region)

    async def _call(self, verb: str, region: str, **arguments: Any) -> Any:
        named = {"kind": self._kind, "name": region, **arguments}
        return await self._gateway.call(f"regions.{verb}", named)


def routes(gateway: Gateway) -> list[Route]:
    return [
        *_routes(SharedMemory(gateway, "system"), "/v2/systemsharedmemory"),
        *_routes(SharedMemory(gateway, "cuda"), "/v2/cudasharedmemory"),
    ]


def _routes(memory: SharedMemory, prefix: str) -> list[Route]:
    region = f"{prefix}/region/{{region:name}}"
    return [
        Route("GET", f"{prefix}/status", "shared-memory", memory.status),
        Route("GET", f"{region}/status", "shared-memory", memory.status),
        Route("POST", f"{region}/register", "shared-memory", memory.register),
        Route("POST", f"{prefix}/register", "shared-memory", memory.register_nameless),
        Route("POST", f"{prefix}/unregister", "shared-memory", memory.unregister),
        Route("POST", f"{region}/unregister", "shared-memory", memory.unregister),
    ]


def _read_handle(document: Any) -> dict[str, Any]:
    """Return handle, device and size. Raises InvalidArgument if the handle cannot be CUDA's."""
    fields = document if type(document) is dict else {}
    for key in ("raw_handle", "byte_size"):
        if key not in fields:
            raise InvalidArgument(f"Shared memory register request has no '{key}' field")
    handle = fields["raw_handle"]
    text = handle.get("b64") if type(handle) is dict else None
    try:
        size = len(base64.b64decode(text or "", validate=True))
    except (TypeError, ValueError):
        size = 0
    if size != _HANDLE_BYTES:
        raise InvalidArgument("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t")
    return {"raw_handle": text, **_numbers(fields, "device_id", "byte_size")}


def _read(document: Any) -> dict[str, Any]:
    """Return key, offset and size. Raises InvalidArgument if one is missing or of another type."""
    fields = document if type(document) is dict else {}
    for key in ("key", "byte_size"):
        if key not in fields:
            raise InvalidArgument(f"Shared memory register request has no '{key}' field")
    if type(fields["key"]) is not str:
        raise InvalidArgument("attempt to access JSON non-string as string")
    return {"key": fields["key"], **_numbers(fields, "offset", "byte_size")}


def _numbers(fields: dict[str, Any], *keys: str) -> dict[str, int]:
    """Return fields as numbers, 0 for a missing one. Raises InvalidArgument for other values."""
    numbers = {}
    for key in keys:
        value = fields.get(key, 0)
        if type(value) is not int or value < 0:
            raise InvalidArgument("attempt to access JSON non-unsigned-integer as unsigned-integer")
        numbers[key] = value
    return numbers
