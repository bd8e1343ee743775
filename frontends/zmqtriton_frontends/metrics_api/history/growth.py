"""The samples of models, from the growth of the broker's counters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zmqtriton_frontends.metrics_api.history.history import ModelSample

#: A row of the broker's answer.
Reading = dict[str, Any]
_SUMS = ("pending", "succeeded", "failed", "queued", "queue_ns", "inferences", "executions")


def samples_of(answer: Mapping[str, Any]) -> dict[str, ModelSample]:
    """Return the samples by `model:version`, of which several generations may be there."""
    sums: dict[str, Reading] = {}
    for reading in answer["readings"]:
        name = f"{reading['model']}:{reading['version']}"
        sums[name] = _sum(sums[name], reading) if name in sums else reading
    return {name: _sample(reading, answer["seconds"]) for name, reading in sums.items()}


def _sum(one: Reading, other: Reading) -> Reading:
    busier = max(one, other, key=lambda reading: int(reading["succeeded"]))
    return {**busier, **{key: one[key] + other[key] for key in _SUMS}}


def _sample(grown: Reading, seconds: float) -> ModelSample:
    return ModelSample(
        requests_per_s=grown["succeeded"] / seconds,
        failures_per_s=grown["failed"] / seconds,
        latency_p50_ms=_milliseconds(grown["p50_ns"]),
        latency_p99_ms=_milliseconds(grown["p99_ns"]),
        queue_ms=_milliseconds(_ratio(grown["queue_ns"], grown["queued"])),
        batch=_ratio(grown["inferences"], grown["executions"]),
        pending=grown["pending"],
    )


def _ratio(total: float, count: int) -> float | None:
    return total / count if count > 0 else None


def _milliseconds(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6
