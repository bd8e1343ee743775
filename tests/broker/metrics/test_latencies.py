from __future__ import annotations

import random

import pytest

from zmqtriton.broker.metrics.latencies import Histogram, Summary

_SECOND = 1_000_000_000


class Now:
    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


def test_a_value_on_a_bound_belongs_to_its_bucket() -> None:
    histogram = Histogram([100.0, 10.0])

    for value in (10.0, 10.1, 100.0, 5000.0):
        histogram.observe(value)

    expected = {"buckets": [10.0, 100.0], "counts": [1, 2, 1], "value": 5120.1}
    assert expected == histogram.as_dict()


@pytest.mark.parametrize("quantile", [0.0, 0.5, 0.9, 0.999, 1.0])
def test_quantiles_are_near_what_sorting_finds(quantile: float) -> None:
    chance = random.Random(7)
    values = [int(chance.lognormvariate(7, 3)) for _ in range(5000)]
    summary = Summary(Now())

    for value in values:
        summary.add(value * 1000)

    [[_, found]] = summary.as_dict([quantile])["quantiles"]
    exact = sorted(values)[max(0, round(quantile * len(values)) - 1)]
    assert found == pytest.approx(exact, rel=0.02, abs=1)


def test_small_values_are_exact() -> None:
    found = []
    for value in range(60):
        summary = Summary(Now())
        summary.add(value * 1000 + 999)
        found += summary.as_dict([0.5])["quantiles"]

    assert [[0.5, value] for value in range(60)] == found


def test_only_the_last_minute_has_quantiles_and_the_sum_is_of_all_time() -> None:
    now = Now()
    summary = Summary(now)
    summary.add(5_000_000, 3)

    now.ns = 40 * _SECOND
    summary.add(1000)

    assert [[0.5, 5000], [1.0, 5000]] == [
        [q, round(v, -1)] for q, v in summary.as_dict([0.5, 1.0])["quantiles"]
    ]
    now.ns = 70 * _SECOND
    assert {"count": 4, "sum": 15001, "quantiles": [[1.0, 1]]} == summary.as_dict([1.0])
    now.ns = 200 * _SECOND
    assert {"count": 4, "sum": 15001, "quantiles": [[1.0, None]]} == summary.as_dict([1.0])


def test_memory_does_not_grow_with_what_is_added() -> None:
    now = Now()
    summary = Summary(now)

    for second in range(600):
        now.ns = second * _SECOND
        for exponent in range(40):
            summary.add(2**exponent)

    assert sum(len(sizes) for sizes in summary._steps.values()) <= 5 * 40
