"""The logging and trace extensions: settings read and changed by clients.

The supervisor keeps the settings, and tells every process of a change.
"""

from __future__ import annotations

from typing import Any

import falcon.asgi

from zmqtriton_floor.errors import InvalidArgument, Unsupported
from zmqtriton_floor.logs import FORMS
from zmqtriton_frontends.gateway import trace_settings
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.http_api.asgi.request import Request
from zmqtriton_frontends.http_api.inference import json_documents

_TEXTS = {
    bool: "attempt to access JSON non-boolean as boolean",
    int: "attempt to access JSON non-unsigned-integer as unsigned-integer",
    str: "attempt to access JSON non-string as string",
    list: "attempt to access JSON non-array as array",
}
_LOG = {
    "log_info": bool,
    "log_warning": bool,
    "log_error": bool,
    "log_verbose_level": int,
    "log_format": str,
}


class Settings:
    """Responders; what a client does not name, or names as null in the log, stays as it is."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._max_input_size: int = gateway.settings.http.max_input_size

    async def log(self, req: Request, resp: falcon.asgi.Response) -> None:
        resp.data = await self._log({})

    async def change_log(self, req: Request, resp: falcon.asgi.Response) -> None:
        resp.data = await self._log(_log_changes(await self._document(req)))

    async def trace(self, req: Request, resp: falcon.asgi.Response, model: str = "") -> None:
        resp.data = json_documents.write(await trace_settings.apply(self._gateway, model, {}))

    async def change_trace(self, req: Request, resp: falcon.asgi.Response, model: str = "") -> None:
        trace_settings.check_model(self._gateway, model)
        document = await self._document(req)
        trace_settings.check_names(document)
        changes = _trace_changes(document)
        resp.data = json_documents.write(await trace_settings.apply(self._gateway, model, changes))

    async def _log(self, changes: dict[str, Any]) -> bytes:
        return json_documents.write(await self._gateway.call("log.settings", {"changes": changes}))

    async def _document(self, req: Request) -> dict[str, Any]:
        body = await req.read_body(self._max_input_size)
        document = await json_documents.read(body, json_documents.parse)
        return document if type(document) is dict else {}


def _log_changes(document: dict[str, Any]) -> dict[str, Any]:
    if document.get("log_file") is not None:
        raise Unsupported("log file location can not be updated through network protocol")
    changes = {}
    for key, kind in _LOG.items():
        value = document.get(key)
        if value is None:
            continue
        _check(value, kind)
        if kind is int and not 0 <= value < 2**32:
            raise InvalidArgument(_TEXTS[int])
        if kind is str and value not in FORMS:
            raise InvalidArgument(f"invalid argument for --log_format, got: {value}")
        changes[key] = value
    return changes


def _trace_changes(document: dict[str, Any]) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if "trace_level" in document:
        names = document["trace_level"]
        if names is None:
            changes["trace_level"] = None
        else:
            _check(names, list)
            for name in names:
                _check(name, str)
            level = trace_settings.level(names)
            if level is not None:
                changes["trace_level"] = level
    for key in trace_settings.NUMBERS:
        if key in document:
            value = document[key]
            if value is not None:
                _check(value, str)
                value = trace_settings.number(key, value, "got:")
            changes[key] = value
    return changes


def _check(value: Any, kind: type[Any]) -> None:
    if type(value) is not kind:
        raise InvalidArgument(_TEXTS[kind])
