"""The settings of Triton's Python backend, `--backend-config=python,...`, and their meaning here.

As in Triton, a wrong value is a problem of every Python model and not of the server, and unknown
keys are accepted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from zmqtriton_floor.errors import InvalidArgument

_MIB = 1 << 20
_LEADING_INT = re.compile(r"\s*([+-]?[0-9]{1,18})")
_NOT_POSITIVE = "can't be smaller than or equal to zero."
#: key -> (default, minimum, error text below it). The first text is Triton's, with its 4.
_NUMBER_RULES = {
    "shm-default-byte-size": (_MIB, _MIB, "can't be smaller than 4 MiBs"),
    "shm-growth-byte-size": (_MIB, 1, _NOT_POSITIVE),
    "stub-timeout-seconds": (30, 1, _NOT_POSITIVE),
    "thread-pool-size": (32, 1, "can't be less than 1."),
}
_PREFIX = "shm-region-prefix-name"


class PythonSettings(NamedTuple):
    #: The size of the first segment of a process's arena, and of each further one.
    segment_bytes: int
    segment_step_bytes: int
    #: Seconds after which a load gives its place to another one; it continues without it.
    load_slot_timeout_s: float

    @classmethod
    def from_backend_config(cls, settings: Mapping[str, str]) -> PythonSettings:
        """Read the settings, with defaults in place of wrong values."""
        values = {
            key: default if isinstance(value := _number(key, settings), InvalidArgument) else value
            for key, (default, *_) in _NUMBER_RULES.items()
        }
        return cls(
            values["shm-default-byte-size"],
            values["shm-growth-byte-size"],
            float(values["stub-timeout-seconds"]),
        )


def check_settings(settings: Mapping[str, str]) -> None:
    """Check all values. Raises InvalidArgument for the first wrong one."""
    for key in _NUMBER_RULES:
        value = _number(key, settings)
        if isinstance(value, InvalidArgument):
            raise value
    if settings.get(_PREFIX) == "":
        raise InvalidArgument(f"{_PREFIX} must at least contain one character")


def _number(key: str, settings: Mapping[str, str]) -> int | InvalidArgument:
    default, least, complaint = _NUMBER_RULES[key]
    if key not in settings:
        return default
    digits = _LEADING_INT.match(settings[key])
    if digits is None:
        return InvalidArgument(f"{key} is '{settings[key]}', which is no number")
    value = int(digits.group(1))
    return value if value >= least else InvalidArgument(f"{key} {complaint}")
