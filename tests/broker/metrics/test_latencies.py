"""Durations of stages, of all requests, and of versions that are compared."""

from __future__ import annotations

import random
from math import ceil
from typing import Any

import pytest

from tests.broker.world import MILLISECOND, SECOND, BrokerHarness, F, S, outcome, request
from zmqtriton.broker.metrics.latencies import Histogram, Summary
from zmqtriton.broker.metrics.statistics import TrialTimes
from zmqtriton_floor import wire
from zmqtriton_floor.metrics import config_of
from zmqtriton_floor.settings.broker import BrokerSettings

# --------------------------------------------------------------------------- latencies


#: Requests and microseconds of each stage, where two have been executed.
_TWO_REQUESTS = {
    "queue": (2, 4000),
    "compute_input": (2, 2000),
    "compute_infer": (2, 4000),
    "compute_output": (2, 6000),
    "request": (2, 16000),
}


class Now:
    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


def test_a_value_on_a_bound_belongs_to_its_bucket() -> None:
    histogram = Histogram([100.0, 10.0])

    for value in (10.0, 10.1, 100.0, 5000.0):
        histogram.observe(value)

    assert {"buckets": [10.0, 100.0], "counts": [1, 2, 1], "value": 5120.1} == histogram.as_dict()


@pytest.mark.parametrize("quantile", [0.0, 0.5, 0.9, 0.999, 1.0])
def test_quantiles_are_near_what_sorting_finds(quantile: float) -> None:
    chance = random.Random(7)
    values = [int(chance.lognormvariate(7, 3)) for _ in range(5000)]
    summary = Summary(Now())

    for value in values:
        summary.add(value * 1000)

    [[_, estimate]] = summary.as_dict([quantile])["quantiles"]
    exact = sorted(values)[max(0, round(quantile * len(values)) - 1)]
    assert estimate == pytest.approx(exact, rel=0.02, abs=1)


def test_small_values_are_exact() -> None:
    quantiles = []
    for value in range(60):
        summary = Summary(Now())
        summary.add(value * 1000 + 999)
        quantiles += summary.as_dict([0.5])["quantiles"]

    assert [[0.5, value] for value in range(60)] == quantiles


def test_only_the_last_minute_has_quantiles_and_the_sum_is_of_all_time() -> None:
    now = Now()
    summary = Summary(now)
    summary.add(5_000_000, 3)

    now.ns = 40 * SECOND
    summary.add(1000)

    assert [[0.5, 5000], [1.0, 5000]] == [
        [q, round(v, -1)] for q, v in summary.as_dict([0.5, 1.0])["quantiles"]
    ]
    now.ns = 70 * SECOND
    assert {"count": 4, "sum": 15001, "quantiles": [[1.0, 1]]} == summary.as_dict([1.0])
    now.ns = 200 * SECOND
    assert {"count": 4, "sum": 15001, "quantiles": [[1.0, None]]} == summary.as_dict([1.0])


def test_memory_does_not_grow_with_what_is_added() -> None:
    now = Now()
    summary = Summary(now)

    for second in range(600):
        now.ns = second * SECOND
        for exponent in range(40):
            summary.add(2**exponent)

    # of 24,000 values
    assert sum(len(sizes) for sizes in summary._steps.values()) <= 5 * 40


def _world(*metrics: str, **config: Any) -> BrokerHarness:
    """A broker that was started with these settings of --metrics-config."""
    settings = BrokerSettings(metrics=config_of([metric.partition("=")[::2] for metric in metrics]))
    return BrokerHarness.serving(S, config=config, settings=settings)


def _figures(world: BrokerHarness) -> dict[str, Any]:
    """Return the figures beyond the protocol, without the quantiles of summaries."""
    own = world.core.generations.by_number[1].statistics.own()
    summaries = own.get("summaries", {}).items()
    return {
        "first_response": own.get("first_response"),
        "summaries": {name: (figures["count"], figures["sum"]) for name, figures in summaries},
    }


def _execute(world: BrokerHarness, *ids: int) -> None:
    """A batch of these waits for 2 ms; its stub tells 1, 2 and 3 ms, and answers 6 ms later."""
    stages = (MILLISECOND, 2 * MILLISECOND, 3 * MILLISECOND)
    arrived = [request(own_id) for own_id in ids]
    world.core.infer(F, arrived, [b""] * len(arrived), world.now)
    world.now += 2 * MILLISECOND
    world.drain_outbox()
    works = world.batched_requests.pop(S)
    world.now += 6 * MILLISECOND
    executed = [wire.Executed(works[0].batch, *stages)]
    world.send_results(S, *(outcome(work.id) for work in works), executed=executed)


def test_each_request_of_a_batch_has_the_times_of_the_batch() -> None:
    world = _world(
        "summary_latencies=true", max_batch_size=4, dynamic_batching={"preferred_batch_size": [2]}
    )

    _execute(world, 1, 2)

    assert _TWO_REQUESTS == _figures(world)["summaries"]


def test_the_first_response_falls_into_the_bucket_of_its_milliseconds() -> None:
    control = {
        "metric_identifier": {"family": "nv_inference_first_response_histogram_ms"},
        "histogram_options": {"buckets": [7, 8]},
    }
    other = {
        "metric_identifier": {"family": "something_else"},
        "histogram_options": {"buckets": [1]},
    }
    world = _world("histogram_latencies=true", model_metrics={"metric_control": [control, other]})

    _execute(world, 1)

    assert {"buckets": [7.0, 8.0], "counts": [0, 1, 0], "value": 8.0} == (
        _figures(world)["first_response"]
    )
    assert {} == _figures(world)["summaries"]


@pytest.mark.parametrize("has_response", [True, False])
def test_only_the_first_response_of_a_stream_counts(has_response: bool) -> None:
    world = _world("histogram_latencies=true", model_transaction_policy={"decoupled": True})
    world.infer(F, request(1))

    for number, flag in enumerate([0, 0, wire.FINAL] if has_response else [wire.FINAL]):
        said = outcome(1, flags=flag, number=number)
        world.send_results(S, said, body=b"x" if has_response else b"")

    assert int(has_response) == sum(_figures(world)["first_response"]["counts"])


@pytest.mark.parametrize("has_histograms", [True, False])
def test_hits_and_misses_of_the_cache_have_summaries_of_their_own(has_histograms: bool) -> None:
    metrics = ["summary_latencies=true", *["histogram_latencies=true"] * has_histograms]
    world = _world(*metrics, response_cache={"enable": True})
    statistics = world.core.generations.by_number[1].statistics
    hit: Any = type("Hit", (), {"arrived_ns": 0, "elements": 1})

    statistics.record_cache_hit(hit, 3 * MILLISECOND)
    statistics.record_cache_insertion(MILLISECOND, 4 * MILLISECOND)

    own = statistics.own()
    figures = {name: (of["count"], of["sum"]) for name, of in own["summaries"].items()}
    assert ((1, 0), (1, 3000), (1, 5000)) == tuple(
        figures[name] for name in ("queue", "cache_hit", "cache_miss")
    )
    assert "request" not in figures
    assert has_histograms == ("first_response" in own)
    if has_histograms:
        first = own["first_response"]
        assert (1, 3.0) == (first["counts"][0], first["value"])


def test_an_ensemble_has_the_times_of_its_steps() -> None:
    statistics = _world("summary_latencies=true").core.generations.by_number[1].statistics
    run: Any = type("Run", (), {"arrived_ns": 0, "elements": 1})

    statistics.record_ensemble(run, 2 * MILLISECOND, 5 * MILLISECOND)

    assert {
        "queue": (1, 2000),
        "compute_input": (1, 0),
        "compute_infer": (1, 5000),
        "compute_output": (1, 0),
        "request": (0, 0),
    } == {name: (of["count"], of["sum"]) for name, of in statistics.own()["summaries"].items()}


# ------------------------------------------------------------------------- trial times
# The times of versions that are compared, and the executions that go on.


def divide(world: BrokerHarness, stable: int = 1) -> None:
    world.core.generations.divide(wire.TrafficSplit("m", stable, 2, 0))


def test_nothing_is_kept_unless_the_version_is_compared(world: BrokerHarness) -> None:
    assert not {"trial", "executing_ns"} & world.figures().keys()
    divide(world)
    assert {"trial", "executing_ns"} <= world.figures().keys()
    divide(world, 0)
    assert not {"trial", "executing_ns"} & world.figures().keys()


def test_an_execution_goes_on_though_its_client_has_left(world: BrokerHarness) -> None:
    divide(world)
    world.infer(F, request(1))
    world.cancel(F, 1)

    world.tick(7)
    figures = world.figures()
    assert ([[7, 7]], [1, 0, 0]) == (figures["executing_ns"], figures["unawaited"])

    world.finish_batch(S)
    assert [1, 1, 0] == world.figures()["unawaited"]


@pytest.mark.parametrize("percentage", [50, 90, 99])
def test_a_percentile_is_wrong_by_a_sixteenth_at_most(percentage: int) -> None:
    chosen = random.Random(1)
    values = sorted(int(chosen.lognormvariate(15, 2)) + 1024 for _ in range(2000))
    times = TrialTimes()
    for value in values:
        times.add_request(value)

    counts = {int(ns): count for ns, count in times.as_dict()["request"].items()}
    rank = ceil(percentage / 100 * len(values))
    exact, expanded = values[rank - 1], [ns for ns in sorted(counts) for _ in range(counts[ns])]

    assert expanded[rank - 1] == pytest.approx(exact, rel=1 / 15)
    assert len(counts) < 200
