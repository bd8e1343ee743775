"""Quotas: the parameters that limit what the processes of one model may take from the others."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from zmqtriton.config.errors import Problem
from zmqtriton.config.parameters import (
    CPU_WEIGHT,
    MAX_EXECUTIONS_PER_SECOND,
    MAX_MEMORY_BYTES,
    MAX_SEGMENT_BYTES,
    QUOTA_PARAMETERS,
    parameter_text,
    whole_number_problem,
)

#: The kernel's own, for control groups.
USUAL_CPU_WEIGHT, MAX_CPU_WEIGHT = 100, 10_000
MAX_EXECUTIONS = 1_000_000
_SIZE = re.compile(r"([0-9]{1,18})([KMGT]?)")
_EXPONENTS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


class Quota(NamedTuple):
    """The limits of one model's processes; the default limits nothing."""

    model: str = ""
    #: Of all its processes together; 0 is no limit.
    max_segment_bytes: int = 0
    #: Of each instance; 0 is no limit.
    max_memory_bytes: int = 0
    cpu_weight: int = USUAL_CPU_WEIGHT


class QuotaUse(NamedTuple):
    """The use of one model's quota, and how often that was too little."""

    segment_bytes: int = 0
    segment_refusals: int = 0
    #: Of the largest instance.
    memory_bytes: int = 0
    memory_excesses: int = 0


NO_QUOTA = Quota()


def quota_of(config: Any, usual: Quota) -> Quota:
    """Return the limits of a model; `usual` holds for unset ones, or if anything is wrong."""
    if any(quota_problems(config)):
        return usual
    segments = _size(parameter_text(config, MAX_SEGMENT_BYTES))
    memory = _size(parameter_text(config, MAX_MEMORY_BYTES))
    return Quota(
        config.name,
        usual.max_segment_bytes if segments is None else segments,
        usual.max_memory_bytes if memory is None else memory,
        int(parameter_text(config, CPU_WEIGHT) or usual.cpu_weight),
    )


def quota_problems(config: Any) -> Iterator[Problem]:
    """Return limits that cannot be meant."""
    for name in QUOTA_PARAMETERS:
        if name not in config.parameters:
            continue
        value = parameter_text(config, name)
        if config.HasField("ensemble_scheduling"):
            problem = "which means nothing to an ensemble: it has no processes, its members have"
        else:
            problem = _CHECKS[name](value)
        if problem:
            yield Problem(f"{name} is '{value}', {problem}", ("parameters", name))


def _size_problem(value: str) -> str:
    is_size = _size(value) is not None
    return "" if is_size else "which is no number of bytes, such as 1048576, 512M or 2G"


def _rate_problem(value: str) -> str:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if number == 0 or 0.001 <= number <= MAX_EXECUTIONS:
        return ""
    return f"which is neither 0 nor a number from 0.001 to {MAX_EXECUTIONS}"


_CHECKS = {
    MAX_SEGMENT_BYTES: _size_problem,
    MAX_MEMORY_BYTES: _size_problem,
    CPU_WEIGHT: lambda value: whole_number_problem(value, MAX_CPU_WEIGHT),
    MAX_EXECUTIONS_PER_SECOND: _rate_problem,
}


def _size(text: str) -> int | None:
    """Return the bytes that a text such as 512M means; None if it means none."""
    match = _SIZE.fullmatch(text.strip().upper())
    return int(match[1]) << _EXPONENTS[match[2]] if match else None
