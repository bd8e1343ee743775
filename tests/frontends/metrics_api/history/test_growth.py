"""Samples of models, of the growth that the broker tells, and their quantiles."""

from __future__ import annotations

from typing import Any

import pytest

from zmqtriton_frontends.metrics_api.history.growth import samples_of
from zmqtriton_frontends.metrics_api.history.quantiles import quantile

BOUNDS_NS = [1_000_000, 2_000_000, 4_000_000]


def reading(**figures: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(("pending", "succeeded", "failed", "queued", "queue_ns"), 0)
    counts = {"inferences": 0, "executions": 0, "latencies": [0, 0, 0, 0]}
    return {"model": "m", "version": 1, **nothing, **counts, **figures}


def sample(*readings: dict[str, Any]) -> Any:
    answer = {"seconds": 5.0, "bounds_ns": BOUNDS_NS, "readings": readings}
    return samples_of(answer)["m:1"]


def test_rates_and_means() -> None:
    found = sample(
        reading(succeeded=10, failed=5, queued=10, queue_ns=20_000_000, inferences=40, executions=8)
    )

    assert (2.0, 1.0, 2.0, 5.0) == (
        found.requests_per_s,
        found.failures_per_s,
        found.queue_ms,
        found.batch,
    )


def test_without_requests_there_are_no_latencies() -> None:
    found = sample(reading(pending=3))

    assert (0.0, 3) == (found.requests_per_s, found.pending)
    assert (None, None, None, None) == (
        found.latency_p50_ms,
        found.latency_p99_ms,
        found.queue_ms,
        found.batch,
    )


def test_generations_of_a_version_are_added_up() -> None:
    one = reading(succeeded=5, latencies=[5, 0, 0, 0])
    other = reading(succeeded=5, latencies=[0, 0, 5, 0])

    found = sample(one, other)

    assert 2.0 == found.requests_per_s
    assert found.latency_p50_ms <= 1.0
    assert found.latency_p99_ms > 3.0


@pytest.mark.parametrize(
    ("counts", "share", "found"),
    [
        ([0, 0, 0, 0], 0.5, None),
        ([0, 4, 0, 0], 0.5, 1_500_000),
        ([0, 4, 0, 0], 1.0, 2_000_000),
        ([99, 0, 1, 0], 0.99, 1_000_000),
        ([0, 0, 0, 7], 0.5, 4_000_000),
    ],
)
def test_quantiles_of_buckets(counts: list[int], share: float, found: float | None) -> None:
    assert found == quantile(BOUNDS_NS, counts, share)
