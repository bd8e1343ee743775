"""The samples of models, from the growth of the broker's counters."""

from __future__ import annotations

from collections.abc import Mapping
from operator import add
from typing import Any

from zmqtriton_frontends.metrics_api.history.history import ModelSample
from zmqtriton_frontends.metrics_api.history.quantiles import quantile

#: A row of the broker's answer.
Reading = dict[str, Any]
_SUMS = ("pending", "succeeded", "failed", "queued", "queue_ns", "inferences", "executions")


def samples_of(answer: Mapping[str, Any]) -> dict[str, ModelSample]:
    """Return the samples by `model:version`, of which several generations may be there."""
    sums: dict[str, Reading] = {}
    for reading in answer["readings"]:
        name = f"{reading['model']}:{reading['version']}"
        sums[name] = _sum(sums[name], reading) if name in sums else reading
    seconds, bounds_ns = answer["seconds"], answer["bounds_ns"]
    return {name: _sample(reading, seconds, bounds_ns) for name, reading in sums.items()}


def _sum(one: Reading, other: Reading) -> Reading:
    latencies = [*map(add, one["latencies"], other["latencies"])]
    return {**{key: one[key] + other[key] for key in _SUMS}, "latencies": latencies}


def _sample(grown: Reading, seconds: float, bounds_ns: list[int]) -> ModelSample:
    return ModelSample(
        requests_per_s=grown["succeeded"] / seconds,
        failures_per_s=grown["failed"] / seconds,
        latency_p50_ms=_milliseconds(quantile(bounds_ns, grown["latencies"], 0.5)),
        latency_p99_ms=_milliseconds(quantile(bounds_ns, grown["latencies"], 0.99)),
        queue_ms=_milliseconds(_ratio(grown["queue_ns"], grown["queued"])),
        batch=_ratio(grown["inferences"], grown["executions"]),
        pending=grown["pending"],
    )


def _ratio(total: float, count: int) -> float | None:
    return total / count if count > 0 else None


def _milliseconds(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6
