"""The repository extension: index, load and unload. The supervisor acts; this translates."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping
from typing import Any

import falcon.asgi

from zmqtriton_floor.errors import InternalError, InvalidArgument, Unsupported
from zmqtriton_floor.staging import PREFIX
from zmqtriton_frontends.access.bearer_tokens import check_unload
from zmqtriton_frontends.access.hidden_places import places_hidden, visible_entries
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.gateway.loads import load
from zmqtriton_frontends.http_api.asgi.request import Request
from zmqtriton_frontends.http_api.inference import json_documents

#: So many characters of base64 are decoded at a time.
_STEP = 1 << 20


class Repository:
    """Responders that return when the supervisor has done the work."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._max_input_size: int = gateway.settings.http.max_input_size

    async def index(self, req: Request, resp: falcon.asgi.Response, repository: str = "") -> None:
        ready = (await self._document(req)).get("ready", False)
        if type(ready) is not bool:
            raise InvalidArgument("attempt to access JSON non-boolean as boolean")
        entries = await self._gateway.call("index", {"ready": ready})
        resp.data = json_documents.write(visible_entries(entries, req.grant))

    async def load(self, req: Request, resp: falcon.asgi.Response, model: str) -> None:
        parameters = _parameters(await self._document(req))
        encoded: dict[str, str] = {}
        for key, value in parameters.items():
            if type(value) is not str:
                raise InvalidArgument("attempt to access JSON non-string as string")
            if key.startswith(PREFIX):
                encoded[key] = value
            elif key != "config":
                raise InternalError("unexpected error on creating Triton parameter")
        files = await asyncio.to_thread(decode, encoded) if encoded else {}
        config = {"config": parameters["config"]} if "config" in parameters else {}
        with places_hidden(req.grant, model):
            await load(self._gateway, model, config, files)

    async def unload(self, req: Request, resp: falcon.asgi.Response, model: str) -> None:
        dependents = _parameters(await self._document(req)).get("unload_dependents", False)
        if type(dependents) is not bool:
            raise InvalidArgument(
                "Unable to parse 'unload_dependents': attempt to access JSON non-boolean as boolean"
            )
        check_unload(req.grant, has_dependents=dependents)
        await self._gateway.call("unload", {"model": model, "unload_dependents": dependents})

    async def named_repository(
        self, req: Request, resp: falcon.asgi.Response, repository: str, model: str
    ) -> None:
        raise Unsupported("'repository_name' specification is not supported")

    async def _document(self, req: Request) -> dict[str, Any]:
        """Return the body's object; an empty body is an empty object."""
        body = await req.read_body(self._max_input_size)
        document = await json_documents.read(body, json_documents.parse) if body else {}
        return document if type(document) is dict else {}


def decode(files: Mapping[str, str]) -> dict[str, bytearray]:
    """Decode the files. Line breaks are allowed: `base64` makes them."""
    decoded: dict[str, bytearray] = {}
    for key, text in files.items():
        try:
            decoded[key] = _decode_one(text)
        except (binascii.Error, ValueError):
            raise InvalidArgument(f"the content of parameter '{key}' is not base64") from None
    return decoded


def _decode_one(text: str) -> bytearray:
    """Decode in steps: each keeps all other threads waiting. Raises ValueError."""
    decoded, rest = bytearray(), ""
    for at in range(0, len(text), _STEP):
        part = rest + "".join(text[at : at + _STEP].split())
        whole = len(part) // 4 * 4
        rest = part[whole:]
        if whole and len(decoded) % 3:
            raise ValueError("there is more after the padding")
        decoded += base64.b64decode(part[:whole], validate=True)
    if rest:
        raise ValueError("the last characters are missing")
    return decoded


def _parameters(document: dict[str, Any]) -> dict[str, Any]:
    parameters = document.get("parameters", {})
    if type(parameters) is not dict:
        raise InvalidArgument("attempt to get members for non-object")
    return parameters
