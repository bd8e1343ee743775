"""Autoscaling: the parameters that let a model's number of instances follow its load."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from zmqtriton.sdk.models import Problem, count_fault, parameter_text

AUTOSCALE_MIN_INSTANCES = "autoscale_min_instances"
AUTOSCALE_MAX_INSTANCES = "autoscale_max_instances"
AUTOSCALE_QUEUE_MILLISECONDS = "autoscale_queue_milliseconds"
AUTOSCALE_DOWN_AFTER_SECONDS = "autoscale_down_after_seconds"
#: The value of AUTOSCALE_MAX_INSTANCES that means as many as the server may use cores.
_CORES = "cores"
_USUAL_QUEUE_MS, _USUAL_DOWN_AFTER_S = 50.0, 30.0


class AutoscaleLimits(NamedTuple):
    """The bounds within which a model's instances follow its load."""

    minimum: int
    maximum: int
    #: Queue time in seconds that is accepted; more instances start if requests would wait longer.
    queue_s: float = _USUAL_QUEUE_MS / 1000
    #: Seconds that fewer instances must have been enough before some stop.
    down_after_s: float = _USUAL_DOWN_AFTER_S


def read(config: Any) -> AutoscaleLimits | None:
    """Return the bounds of a model; None if it is not scaled, or if its bounds are wrong."""
    if AUTOSCALE_MAX_INSTANCES not in config.parameters or any(problems(config)):
        return None
    queue_ms = parameter_text(config, AUTOSCALE_QUEUE_MILLISECONDS)
    down_after_s = parameter_text(config, AUTOSCALE_DOWN_AFTER_SECONDS)
    minimum, maximum = _bounds(config)
    return AutoscaleLimits(
        minimum,
        maximum,
        float(queue_ms or _USUAL_QUEUE_MS) / 1000,
        float(down_after_s or _USUAL_DOWN_AFTER_S),
    )


def problems(config: Any) -> Iterator[Problem]:
    """Return the problems of bounds that make no sense."""
    names = [name for name in _CHECKS if name in config.parameters]
    for name in names:
        value, field = parameter_text(config, name), ("parameters", name)
        problem = _common_problem(config) or _CHECKS[name](value)
        if problem:
            yield Problem(f"{name} is '{value}', {problem}", field)
            return
    if AUTOSCALE_MAX_INSTANCES in names:
        minimum, maximum = _bounds(config)
        if minimum > maximum:
            text = f"{AUTOSCALE_MIN_INSTANCES} is {minimum}, more than the {maximum} that"
            field = ("parameters", AUTOSCALE_MIN_INSTANCES)
            yield Problem(f"{text} {AUTOSCALE_MAX_INSTANCES} allows; lower it", field)


def _bounds(config: Any) -> tuple[int, int]:
    maximum = parameter_text(config, AUTOSCALE_MAX_INSTANCES)
    cores = len(os.sched_getaffinity(0))
    minimum = int(parameter_text(config, AUTOSCALE_MIN_INSTANCES) or 1)
    return minimum, max(minimum, cores) if maximum == _CORES else int(maximum)


def _common_problem(config: Any) -> str:
    if config.HasField("ensemble_scheduling"):
        return "which means nothing to an ensemble: it has no instances, its members have"
    if AUTOSCALE_MAX_INSTANCES not in config.parameters:
        return f"which means nothing without {AUTOSCALE_MAX_INSTANCES}"
    if len(config.instance_group) > 1:
        return "and there are several instance groups; only a model with one is scaled by itself"
    return ""


def _least_problem(value: str) -> str:
    if value == "0":
        return "use --load-on-demand with unload_idle_after_seconds to have none while it is idle"
    return count_fault(value)


def _duration_problem(value: str) -> str:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    return "" if 0 < number < 1e6 else "which is no duration above 0"


_CHECKS: dict[str, Callable[[str], str]] = {
    AUTOSCALE_MIN_INSTANCES: _least_problem,
    AUTOSCALE_MAX_INSTANCES: lambda value: "" if value == _CORES else count_fault(value),
    AUTOSCALE_QUEUE_MILLISECONDS: _duration_problem,
    AUTOSCALE_DOWN_AFTER_SECONDS: _duration_problem,
}
#: Types of values that readers send to the supervisor.
TYPES = (AutoscaleLimits,)
