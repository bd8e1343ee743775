"""Histograms and summaries of latencies, for the versions in `--metrics-config`.

Other versions have plain counters, and no code of this module runs for them. Memory is limited,
however many requests there are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import ceil, exp, log
from typing import Any

from zmqtriton.broker.metrics.statistics import Clock, CountedBatch, CountedRequest, ModelStatistics
from zmqtriton_floor.metrics import MetricsConfig
from zmqtriton_floor.wire import Executed, Outcome

_FIRST_RESPONSE = "nv_inference_first_response_histogram_ms"

#: Number of steps in the last minute, which quantiles cover, and the length of a step.
_STEPS = 5
_STEP_NS = 12_000_000_000
#: Largest relative difference of values that are counted as one: a quantile is off by half of it at
#: most.
_RESOLUTION = 0.01
_PER_LOG = 1 / log(1 + _RESOLUTION)


class Histogram:
    """Counts the values of each bucket."""

    def __init__(self, buckets: list[float]) -> None:
        self._buckets = sorted(set(buckets))
        self._counts = [0] * (len(self._buckets) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._buckets, value)] += 1
        self._sum += value

    def as_dict(self) -> dict[str, Any]:
        return {"buckets": self._buckets, "counts": self._counts, "value": self._sum}


class Summary:
    """A summary in microseconds: count, sum, and the quantiles of the last minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._count = 0
        self._sum = 0
        #: Number of values of each size, which is a logarithm, for each step of the last minute.
        self._steps: dict[int, dict[int, int]] = {}

    def add(self, ns: int, count: int = 1) -> None:
        us = ns // 1000
        self._count += count
        self._sum += count * us
        step = self._clock() // _STEP_NS
        sizes = self._steps.get(step)
        if sizes is None:
            self._forget(step)
            sizes = self._steps[step] = {}
        size = round(log(us) * _PER_LOG) if us > 0 else -1
        sizes[size] = sizes.get(size, 0) + count

    def _forget(self, now: int) -> None:
        for step in [step for step in self._steps if step <= now - _STEPS]:
            del self._steps[step]

    def as_dict(self, quantiles: Sequence[float]) -> dict[str, Any]:
        """Return the figures; a quantile is None if nothing was measured in the last minute."""
        self._forget(self._clock() // _STEP_NS)
        sizes: dict[int, int] = {}
        for step in self._steps.values():
            for size, count in step.items():
                sizes[size] = sizes.get(size, 0) + count
        values = [[quantile, _quantile(sizes, quantile)] for quantile in quantiles]
        return {"count": self._count, "sum": self._sum, "quantiles": values}


def _quantile(sizes: dict[int, int], quantile: float) -> int | None:
    rank = max(1, ceil(quantile * sum(sizes.values())))
    for size, count in sorted(sizes.items()):
        rank -= count
        if rank <= 0:
            return round(exp(size / _PER_LOG)) if size >= 0 else 0
    return None


class LatencyStatistics(ModelStatistics):
    """Counters of a version that also keep the distribution of its latencies."""

    def __init__(
        self, config: MetricsConfig, clock: Clock, buckets: list[float], *, is_cached: bool
    ) -> None:
        super().__init__()
        self._config = config
        self._first_response = Histogram(buckets) if config.has_histograms else None
        self.times_responses = config.has_histograms
        names = ["queue", "compute_input", "compute_infer", "compute_output"]
        # As in Triton: hits and other requests differ too much for one summary.
        names += ["cache_hit", "cache_miss"] if is_cached else ["request"]
        self._summaries = {name: Summary(clock) for name in names if config.has_summaries}

    def _sum_up(self, name: str, ns: int, count: int = 1) -> None:
        summary = self._summaries.get(name)
        if summary is not None:
            summary.add(ns, count)

    def record_success(self, request: CountedRequest, now_ns: int) -> None:
        super().record_success(request, now_ns)
        self._sum_up("request", now_ns - request.arrived_ns)

    def record_cache_hit(self, request: CountedRequest, lookup_ns: int) -> None:
        super().record_cache_hit(request, lookup_ns)
        self._sum_up("queue", 0)
        self._sum_up("cache_hit", lookup_ns)
        if self._first_response is not None:
            self._first_response.observe(lookup_ns / 1e6)

    def record_cache_insertion(self, lookup_ns: int, insertion_ns: int) -> None:
        super().record_cache_insertion(lookup_ns, insertion_ns)
        self._sum_up("cache_miss", lookup_ns + insertion_ns)

    def record_response(
        self, request: CountedRequest, outcome: Outcome, has_response: bool, now_ns: int
    ) -> None:
        super().record_response(request, outcome, has_response, now_ns)
        if self._first_response is not None and has_response and not outcome.number:
            self._first_response.observe((now_ns - request.arrived_ns) / 1e6)

    def record_ensemble(self, request: CountedRequest, queue_ns: int, compute_ns: int) -> None:
        super().record_ensemble(request, queue_ns, compute_ns)
        self._took(1, (0, compute_ns, 0))
        self._sum_up("queue", queue_ns)

    def record_execution(self, batch: CountedBatch, times: Executed) -> None:
        super().record_execution(batch, times)
        if batch.requests and self._summaries:
            for request in batch.requests:
                self._sum_up("queue", request.dispatched_ns - request.arrived_ns)
            self._took(len(batch.requests), times[1:4])

    def _took(self, count: int, times: tuple[int, ...]) -> None:
        for name, ns in zip(("input", "infer", "output"), times, strict=True):
            self._sum_up(f"compute_{name}", ns, count)

    def own(self) -> dict[str, Any]:
        first = self._first_response
        quantiles = self._config.quantiles
        summaries = {name: of.as_dict(quantiles) for name, of in self._summaries.items()}
        more: dict[str, Any] = {"summaries": summaries} if summaries else {}
        return super().own() | more | ({"first_response": first.as_dict()} if first else {})


def statistics_of(
    config: dict[str, Any], metrics: MetricsConfig, clock: Clock, *, is_cached: bool
) -> ModelStatistics:
    """Make the statistics of a version, as the server's settings require."""
    if not (metrics.has_histograms or metrics.has_summaries):
        return ModelStatistics()
    return LatencyStatistics(metrics, clock, _buckets(config), is_cached=is_cached)


def _buckets(config: dict[str, Any]) -> list[float]:
    """Return the buckets that the configuration sets, or the default ones."""
    buckets = [100.0, 500.0, 2000.0, 5000.0]
    for control in (config.get("model_metrics") or {}).get("metric_control", []):
        if control.get("metric_identifier", {}).get("family") == _FIRST_RESPONSE:
            buckets = [float(bound) for bound in control["histogram_options"]["buckets"]]
    return buckets
