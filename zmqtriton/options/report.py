"""The options that a server uses, as texts of its command line, for people who look after it.

Keys and passwords are asterisks. Does no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from zmqtriton.options.parser import parse
from zmqtriton.options.result import DEFAULTS, Options
from zmqtriton.options.table import OPTIONS_BY_NAME
from zmqtriton.options.values import RateLimitResource, Restriction, Setting, TraceOptions

_HIDDEN = "***"
_SECRET_KEY = re.compile(r"password|secret|token|key|headers|credential", re.IGNORECASE)
#: Names of options by their fields, where these have another name or are made of several options.
_OPTION_NAMES = {"trace": "trace-config", "strict_model_config": "strict-model-config"}
_NOT_OPTIONS = frozenset({"warnings", "origins"})


def describe_options(options: Options, bound: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every option with its value, its default and the place where it stands, if any.

    `bound` has the ports that were found for the number 0, by field.
    """
    defaults = parse(["--model-repository=."])
    origins = dict(options.origins)
    rows = []
    for field in DEFAULTS:
        name = _OPTION_NAMES.get(field, field.replace("_", "-"))
        if field in _NOT_OPTIONS or name not in {*OPTIONS_BY_NAME, "trace-config"}:
            continue
        value = options.value(field)
        if field.endswith("_port") and value == 0:
            value = bound.get(field, 0)
        default = () if field == "model_repository" else defaults.value(field)
        rows.append(
            {
                "option": name,
                "value": _describe(value),
                "default": _describe(default),
                "is_default": value == default,
                "source": origins.get(field, ""),
            }
        )
    return rows


def _describe(value: Any) -> Any:
    """Return a value as JSON has it; a value with parts is written as on the command line."""
    if isinstance(value, Setting):
        return ",".join(filter(None, (value.name, f"{value.key}={_hide(value.key, value.value)}")))
    if isinstance(value, Restriction):
        return f"{','.join(value.categories)}:{value.header}={_HIDDEN}"
    if isinstance(value, RateLimitResource):
        device = "" if value.device < 0 else f":{value.device}"
        return f"{value.name}:{value.amount}{device}"
    if isinstance(value, TraceOptions):
        return _describe_trace(value)
    if isinstance(value, tuple):
        if value and all(isinstance(part, (int, float)) for part in value):
            return ":".join(map(str, value))
        return [_describe(part) for part in value]
    return value


def _describe_trace(trace: TraceOptions) -> list[str]:
    texts = [f"mode={trace.mode}", f"rate={trace.rate}", f"count={trace.count}"]
    texts += [f"level={level}" for level in trace.level]
    if trace.file:
        texts += [f"triton,file={trace.file}", f"triton,log-frequency={trace.log_frequency}"]
    return texts + [
        f"opentelemetry,{key}={_hide(key, value)}" for key, value in trace.opentelemetry
    ]


def _hide(key: str, value: str) -> str:
    return _HIDDEN if _SECRET_KEY.search(key) else value
