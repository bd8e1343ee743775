"""The model repository, log and trace settings, and clients' shared memory, over gRPC.

The supervisor makes the changes and keeps the settings; these RPCs translate. GPU memory is named
by a handle, which model processes open.
"""

from __future__ import annotations

import base64
from typing import Any

from zmqtriton_floor.errors import InvalidArgument, Unsupported
from zmqtriton_floor.logs import FORMS
from zmqtriton_floor.staging import PREFIX
from zmqtriton_floor.token_file import CONTROL
from zmqtriton_frontends.access.bearer_tokens import (
    check_model,
    check_target,
    check_unload,
    places_hidden,
    visible_entries,
)
from zmqtriton_frontends.gateway import trace_settings
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.gateway.loads import load
from zmqtriton_frontends.grpc_api.call import RpcCall
from zmqtriton_frontends.grpc_api.control.reading import read_load
from zmqtriton_frontends.process.peer_user import user_of

#: The field of each setting, and Triton's name for that.
_LOG_KINDS = {
    "log_info": ("bool_param", "boolean"),
    "log_warning": ("bool_param", "boolean"),
    "log_error": ("bool_param", "boolean"),
    "log_verbose_level": ("uint32_param", "int32"),
    "log_format": ("string_param", "string"),
}
_FIELDS = {bool: "bool_param", int: "uint32_param", str: "string_param"}


async def repository_index(gateway: Gateway, request: Any, call: RpcCall) -> dict[str, Any]:
    entries = await gateway.call("index", {"ready": _addressed(request).ready})
    return {"models": visible_entries(entries, call.grant)}


async def load_model(gateway: Gateway, data: bytes, call: RpcCall) -> bytes:
    """Read and answer a message that may be large; an empty response has no bytes."""
    request, large = await read_load(data, call)
    check_model(call.grant, _addressed(request).model_name)
    parameters, files = _load_parameters(request)
    files.update(large)
    with places_hidden(call.grant, request.model_name):
        await load(gateway, request.model_name, parameters, files)
    return b""


async def unload_model(gateway: Gateway, request: Any, call: RpcCall) -> dict[str, Any]:
    check_model(call.grant, _addressed(request).model_name)
    has_dependents = _unload_dependents(request)
    check_unload(call.grant, has_dependents=has_dependents)
    await gateway.call("unload", {"model": request.model_name, "unload_dependents": has_dependents})
    return {}


def _addressed(request: Any) -> Any:
    if request.repository_name:
        raise Unsupported("'repository_name' specification is not supported")
    return request


def _load_parameters(request: Any) -> tuple[dict[str, str], dict[str, bytes | memoryview]]:
    parameters: dict[str, str] = {}
    files: dict[str, bytes | memoryview] = {}
    for key, parameter in request.parameters.items():
        if key != "config" and not key.startswith(PREFIX):
            raise InvalidArgument(f"unrecognized load parameter '{key}'.")
        expected = "string_param" if key == "config" else "bytes_param"
        if parameter.WhichOneof("parameter_choice") != expected:
            raise InvalidArgument(
                f"invalid value type for load parameter '{key}', expected {expected}."
            )
        taken: dict[str, Any] = parameters if key == "config" else files
        taken[key] = getattr(parameter, expected)
    return parameters, files


def _unload_dependents(request: Any) -> bool:
    if "unload_dependents" not in request.parameters:
        return False
    parameter = request.parameters["unload_dependents"]
    if parameter.WhichOneof("parameter_choice") != "bool_param":
        raise InvalidArgument(
            "invalid value type for 'unload_dependents' parameter, expected bool_param."
        )
    return bool(parameter.bool_param)


async def log_settings(gateway: Gateway, request: Any, _call: RpcCall) -> dict[str, Any]:
    settings = await gateway.call("log.settings", {"changes": _log_changes(request.settings)})
    return {"settings": {key: {_FIELDS[type(one)]: one} for key, one in settings.items()}}


async def trace_setting(gateway: Gateway, request: Any, call: RpcCall) -> dict[str, Any]:
    check_target(call.grant, CONTROL, request.model_name)
    trace_settings.check_model(gateway, request.model_name)
    trace_settings.check_names(request.settings)
    changes = _trace_changes(request.settings)
    settings = await trace_settings.apply(gateway, request.model_name, changes)
    return {
        "settings": {
            key: {"value": value if type(value) is list else [value]}
            for key, value in settings.items()
        }
    }


def _log_changes(settings: Any) -> dict[str, Any]:
    if "log_file" in settings:
        raise Unsupported("log file location can not be updated through network protocol")
    changes = {}
    for key, (field, kind) in _LOG_KINDS.items():
        if key not in settings:
            continue
        if settings[key].WhichOneof("parameter_choice") != field:
            raise InvalidArgument(f"expect {kind} for '{key}'")
        changes[key] = value = getattr(settings[key], field)
        if key == "log_format" and value not in FORMS:
            raise InvalidArgument(f"invalid argument for log_format, got: {value}")
    return changes


def _trace_changes(settings: Any) -> dict[str, Any]:
    """Return the changes; None removes a setting."""
    changes: dict[str, Any] = {}
    if "trace_level" in settings:
        names = list(settings["trace_level"].value)
        level = trace_settings.level(names)
        if level is not None or not names:
            changes["trace_level"] = level
    for key in trace_settings.NUMBERS:
        if key in settings:
            values = settings[key].value
            if len(values) > 1:
                raise InvalidArgument(f"expect only 1 value for '{key}'")
            changes[key] = trace_settings.number(key, values[0]) if values else None
    return changes


async def region_status(
    gateway: Gateway, kind: str, request: Any, _call: RpcCall
) -> dict[str, Any]:
    regions = await _ask(gateway, kind, "status", request)
    return {"regions": {region["name"]: region for region in regions}}


async def register_region(
    gateway: Gateway, kind: str, request: Any, call: RpcCall
) -> dict[str, Any]:
    details: dict[str, Any] = {"byte_size": request.byte_size}
    if kind == "system":
        details |= {"key": request.key, "offset": request.offset}
        details["user"] = await user_of(*call.ends)
    else:
        details |= {
            "raw_handle": base64.b64encode(request.raw_handle).decode(),
            "device_id": request.device_id,
        }
    await _ask(gateway, kind, "register", request, **details)
    return {}


async def unregister_region(
    gateway: Gateway, kind: str, request: Any, _call: RpcCall
) -> dict[str, Any]:
    await _ask(gateway, kind, "unregister", request)
    return {}


async def _ask(gateway: Gateway, kind: str, verb: str, request: Any, **details: Any) -> Any:
    return await gateway.call(f"regions.{verb}", {"kind": kind, "name": request.name, **details})
