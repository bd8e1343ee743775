"""Trace settings as clients send them, over either protocol; the supervisor keeps them.

Numbers are strings here, as in the extension itself.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from typing import Any

from zmqtriton_floor.errors import InvalidArgument, Unsupported, ZmqTritonError
from zmqtriton_frontends.gateway.gateway import Gateway

#: The numeric settings, with their limits.
NUMBERS = {
    "trace_rate": (0, 2**32 - 1),
    "trace_count": (-1, 2**31 - 1),
    "log_frequency": (0, 2**32 - 1),
}
#: Number at the beginning of a text, as C reads it: what follows the digits is ignored.
_NUMBER = re.compile(r"[ \t\n\v\f\r]*([+-]?[0-9]+)")
#: Characters of a number that is beyond every limit.
_MANY_DIGITS = 30


async def apply(gateway: Gateway, model: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Change the settings of a model or, without a name, of all; return the settings."""
    check_model(gateway, model)
    settings: dict[str, Any] = await gateway.call(
        "trace.settings", {"model": model, "changes": changes}
    )
    return settings


def check_model(gateway: Gateway, model: str) -> None:
    """Raise InvalidArgument for a model that is not served; "" stands for all."""
    try:
        is_known = not model or gateway.catalogue.is_model_ready(model)
    except ZmqTritonError:
        is_known = False
    if not is_known:
        raise InvalidArgument(f"Request for unknown model : {model}")


def check_names(names: Container[str]) -> None:
    """Raise Unsupported for settings that only operators may change."""
    if "trace_file" in names:
        raise Unsupported("trace file location can not be updated through network protocol")


def number(key: str, text: str, got: str = "got: ") -> str:
    """Return the number as it will be shown.

    `got` precedes the text in one of the errors, which differs between the protocols.
    """
    minimum, maximum = NUMBERS[key]
    match = _NUMBER.match(text)
    if match is None:
        raise InvalidArgument(f"Unable to parse '{key}', got: {text}")
    value = int(match[1]) if len(match[1]) < _MANY_DIGITS else maximum + 1
    if key == "trace_count" and -(2**31) <= value < minimum:
        raise InvalidArgument(f"Unable to parse '{key}'. Expecting value >= {minimum}, {got}{text}")
    if not minimum <= value <= maximum:
        raise InvalidArgument(
            f"Unable to parse '{key}', value is out of range [ {minimum}, {maximum} ], got: {text}"
        )
    return str(value)


def level(names: Sequence[str]) -> list[str] | None:
    """Return the known levels, or None, which changes nothing."""
    if "OFF" in names:
        if len(names) > 1:
            raise InvalidArgument("Expect only one trace level 'OFF' is specified")
        return ["OFF"]
    return [name for name in ("TIMESTAMPS", "TENSORS") if name in names] or None
