"""Log and trace settings, read and changed by clients.

The supervisor keeps the settings, and tells every process of a change.
"""

from __future__ import annotations

from typing import Any

from zmqtriton_floor.access.token_file import CONTROL
from zmqtriton_floor.errors import InvalidArgument, Unsupported
from zmqtriton_floor.logs import FORMS
from zmqtriton_frontends.access.bearer_tokens import check_target
from zmqtriton_frontends.gateway import trace_settings
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.grpc_api.call import Call
from zmqtriton_frontends.grpc_api.control.reading import read
from zmqtriton_frontends.grpc_api.inference.convert import serialize
from zmqtriton_protos import message

_LOG_REQUEST = message("inference.LogSettingsRequest")
_LOG = message("inference.LogSettingsResponse")
_TRACE_REQUEST = message("inference.TraceSettingRequest")
_TRACE = message("inference.TraceSettingResponse")

#: The field of each setting, and Triton's name for that.
_LOG_KINDS = {
    "log_info": ("bool_param", "boolean"),
    "log_warning": ("bool_param", "boolean"),
    "log_error": ("bool_param", "boolean"),
    "log_verbose_level": ("uint32_param", "int32"),
    "log_format": ("string_param", "string"),
}
_FIELDS = {bool: "bool_param", int: "uint32_param", str: "string_param"}


class Settings:
    """LogSettings and TraceSetting; a request without settings changes nothing."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def log(self, data: bytes, _call: Call) -> bytes:
        changes = _log_changes(read(_LOG_REQUEST, data).settings)
        settings = await self._gateway.call("log.settings", {"changes": changes})
        shown = {key: {_FIELDS[type(value)]: value} for key, value in settings.items()}
        return serialize(_LOG(settings=shown))

    async def trace(self, data: bytes, call: Call) -> bytes:
        request = read(_TRACE_REQUEST, data)
        check_target(call.grant, CONTROL, request.model_name)
        trace_settings.check_model(self._gateway, request.model_name)
        trace_settings.check_names(request.settings)
        changes = _trace_changes(request.settings)
        settings = await trace_settings.apply(self._gateway, request.model_name, changes)
        shown = {
            key: {"value": value if type(value) is list else [value]}
            for key, value in settings.items()
        }
        return serialize(_TRACE(settings=shown))


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
