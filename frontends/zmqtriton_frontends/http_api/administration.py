"""The extensions that change a server: model repository, logging, trace, and shared memory.

The supervisor makes the changes and keeps the settings; this module translates. GPU memory is named
by a handle; only its form is checked here, and model processes open it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import falcon.asgi

from zmqtriton_floor.errors import InternalError, InvalidArgument, Unsupported
from zmqtriton_floor.logs import FORMS
from zmqtriton_floor.staging import PREFIX
from zmqtriton_frontends.access.bearer_tokens import check_unload, places_hidden, visible_entries
from zmqtriton_frontends.gateway import trace_settings
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.gateway.loads import MAX_CONFIG_BYTES, MAX_PARAMETERS, load
from zmqtriton_frontends.http_api.asgi.access import Route
from zmqtriton_frontends.http_api.asgi.request import HttpRequest
from zmqtriton_frontends.http_api.inference import json_documents
from zmqtriton_frontends.process.peer_user import user_of

#: Characters of base64 that are decoded at a time.
_STEP = 1 << 20
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
#: Size of a cudaIpcMemHandle_t in bytes.
_HANDLE_BYTES = 64
#: Characters of such a handle in base64; a longer text is not decoded, which would keep all
#: clients waiting.
_MAX_HANDLE_BYTES = 88


class RepositoryResponders:
    """Responders for the model repository, which return when the supervisor has done the work."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def index(
        self, req: HttpRequest, resp: falcon.asgi.Response, repository: str = ""
    ) -> None:
        ready = (await self._document(req)).get("ready", False)
        _check(ready, bool)
        resp.data = json_documents.write(
            visible_entries(await self._gateway.call("index", {"ready": ready}), req.grant)
        )

    async def load(self, req: HttpRequest, resp: falcon.asgi.Response, model: str) -> None:
        body = await req.read_body(self._gateway.settings.http.max_input_size) or b"{}"
        parameters = _parameters(await json_documents.read(req.hold, body, _object_in))
        if len(parameters) > MAX_PARAMETERS:
            raise InvalidArgument(f"a load has at most {MAX_PARAMETERS} parameters")
        encoded: dict[str, str] = {}
        for key, value in parameters.items():
            _check(value, str)
            if key.startswith(PREFIX):
                encoded[key] = value
            elif key != "config":
                raise InternalError("unexpected error on creating Triton parameter")
        files = await json_documents.perform(sum(map(len, encoded.values())), decode, encoded)
        config = {"config": parameters["config"]} if "config" in parameters else {}
        if config and len(config["config"]) > MAX_CONFIG_BYTES:
            raise InvalidArgument(f"the config of a load has at most {MAX_CONFIG_BYTES} bytes")
        with places_hidden(req.grant, model):
            await load(self._gateway, model, config, files)

    async def unload(self, req: HttpRequest, resp: falcon.asgi.Response, model: str) -> None:
        dependents = _parameters(await self._document(req)).get("unload_dependents", False)
        if type(dependents) is not bool:
            raise InvalidArgument(
                "Unable to parse 'unload_dependents': attempt to access JSON non-boolean as boolean"
            )
        check_unload(req.grant, has_dependents=dependents)
        await self._gateway.call("unload", {"model": model, "unload_dependents": dependents})

    async def named_repository(
        self, req: HttpRequest, resp: falcon.asgi.Response, repository: str, model: str
    ) -> None:
        raise Unsupported("'repository_name' specification is not supported")

    async def _document(self, req: HttpRequest) -> dict[str, Any]:
        """Return the body's object; an empty body is an empty object."""
        return _object_in(await req.read_control() or b"{}")


def _object_in(body: bytes) -> dict[str, Any]:
    """Return the object in a body; an empty one if the body has another value."""
    document = json_documents.parse(body)
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
    """Decode in steps, since each step keeps all other threads waiting. Raises ValueError."""
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


class SettingsResponders:
    """Responders for settings; a setting that a client does not name, or a null, stays as it is."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def log(self, req: HttpRequest, resp: falcon.asgi.Response) -> None:
        resp.data = await self._log({})

    async def change_log(self, req: HttpRequest, resp: falcon.asgi.Response) -> None:
        resp.data = await self._log(_log_changes(_object_in(await req.read_control())))

    async def trace(self, req: HttpRequest, resp: falcon.asgi.Response, model: str = "") -> None:
        resp.data = json_documents.write(await trace_settings.apply(self._gateway, model, {}))

    async def change_trace(
        self, req: HttpRequest, resp: falcon.asgi.Response, model: str = ""
    ) -> None:
        trace_settings.check_model(self._gateway, model)
        document = _object_in(await req.read_control())
        trace_settings.check_names(document)
        changes = _trace_changes(document)
        resp.data = json_documents.write(await trace_settings.apply(self._gateway, model, changes))

    async def _log(self, changes: dict[str, Any]) -> bytes:
        return json_documents.write(await self._gateway.call("log.settings", {"changes": changes}))


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


class RegionResponders:
    """Responders for one kind: "system" or "cuda"."""

    def __init__(self, gateway: Gateway, kind: str) -> None:
        self._gateway = gateway
        self._kind = kind

    async def status(self, req: HttpRequest, resp: falcon.asgi.Response, region: str = "") -> None:
        resp.data = json_documents.write(await self._call("status", region))

    async def register(self, req: HttpRequest, resp: falcon.asgi.Response, region: str) -> None:
        fields = _object_in(await req.read_control())
        is_system = self._kind == "system"
        for key in ("key" if is_system else "raw_handle", "byte_size"):
            if key not in fields:
                raise InvalidArgument(f"Shared memory register request has no '{key}' field")
        if is_system:
            _check(fields["key"], str)
            numbers = _numbers(fields, "offset", "byte_size")
            user = await user_of(*req.ends)
            await self._call("register", region, key=fields["key"], **numbers, user=user)
        else:
            await self._call("register", region, **_read_handle(fields))

    async def register_nameless(self, req: HttpRequest, resp: falcon.asgi.Response) -> None:
        await req.read_control()
        raise InvalidArgument(
            f"'region name' is necessary to register {self._kind} shared memory region"
        )

    async def unregister(
        self, req: HttpRequest, resp: falcon.asgi.Response, region: str = ""
    ) -> None:
        await req.read_control()
        await self._call("unregister", region)

    async def _call(self, verb: str, region: str, **arguments: Any) -> Any:
        return await self._gateway.call(
            f"regions.{verb}", {"kind": self._kind, "name": region, **arguments}
        )


def shared_memory_routes(gateway: Gateway) -> list[Route]:
    return [
        *_routes(RegionResponders(gateway, "system"), "/v2/systemsharedmemory"),
        *_routes(RegionResponders(gateway, "cuda"), "/v2/cudasharedmemory"),
    ]


def _routes(memory: RegionResponders, prefix: str) -> list[Route]:
    region = f"{prefix}/region/{{region:name}}"
    return [
        Route("GET", f"{prefix}/status", "shared-memory", memory.status),
        Route("GET", f"{region}/status", "shared-memory", memory.status),
        Route("POST", f"{region}/register", "shared-memory", memory.register),
        Route("POST", f"{prefix}/register", "shared-memory", memory.register_nameless),
        Route("POST", f"{prefix}/unregister", "shared-memory", memory.unregister),
        Route("POST", f"{region}/unregister", "shared-memory", memory.unregister),
    ]


def _read_handle(fields: dict[str, Any]) -> dict[str, Any]:
    """Return handle, device and size. Raises InvalidArgument if the handle cannot be CUDA's."""
    handle = fields["raw_handle"]
    text = handle.get("b64") if type(handle) is dict else None
    if not isinstance(text, str) or len(text) > _MAX_HANDLE_BYTES:
        text = ""
    try:
        size = len(base64.b64decode(text, validate=True))
    except ValueError:
        size = 0
    if size != _HANDLE_BYTES:
        raise InvalidArgument("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t")
    return {"raw_handle": text, **_numbers(fields, "device_id", "byte_size")}


def _numbers(fields: dict[str, Any], *keys: str) -> dict[str, int]:
    """Return fields as numbers, 0 for a missing one. Raises InvalidArgument for other values."""
    numbers = {}
    for key in keys:
        value = fields.get(key, 0)
        if type(value) is not int or value < 0:
            raise InvalidArgument(_TEXTS[int])
        numbers[key] = value
    return numbers
