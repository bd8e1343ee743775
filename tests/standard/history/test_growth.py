"""Samples of models, of the growth that the broker tells."""

from __future__ import annotations

from typing import Any

from zmqtriton_standard.history.sampler import samples_of


def reading(**figures: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(("pending", "succeeded", "failed", "queued", "queue_ns"), 0)
    counts = {"inferences": 0, "executions": 0, "p50_ns": None, "p99_ns": None}
    return {"model": "m", "version": 1, **nothing, **counts, **figures}


def sample(*readings: dict[str, Any]) -> Any:
    return samples_of({"seconds": 5.0, "readings": readings})["m:1"]


def test_rates_and_means() -> None:
    rates = sample(
        reading(succeeded=10, failed=5, queued=10, queue_ns=20_000_000, inferences=40, executions=8)
    )

    assert (2.0, 1.0, 2.0, 5.0) == (
        rates.requests_per_s,
        rates.failures_per_s,
        rates.queue_ms,
        rates.batch,
    )


def test_without_requests_there_are_no_latencies() -> None:
    rates = sample(reading(pending=3))

    assert (0.0, 3) == (rates.requests_per_s, rates.pending)
    assert (None, None, None, None) == (
        rates.latency_p50_ms,
        rates.latency_p99_ms,
        rates.queue_ms,
        rates.batch,
    )


def test_generations_of_a_version_are_added_up() -> None:
    one = reading(succeeded=5, p50_ns=1_000_000, p99_ns=2_000_000)
    rates = sample(one, reading(succeeded=15, p50_ns=3_000_000, p99_ns=4_000_000))

    assert 4.0 == rates.requests_per_s
    assert (3.0, 4.0) == (rates.latency_p50_ms, rates.latency_p99_ms), "those of the busier one"
