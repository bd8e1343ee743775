"""Metrics under names of our own, from what broker and supervisor tell, and their labels."""

from __future__ import annotations

import os
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from zmqtriton_floor.wire import MemoryGrowth
from zmqtriton_standard.metrics.model_metrics import Series, add_labels
from zmqtriton_standard.metrics.own import Busyness, render_models
from zmqtriton_standard.metrics.processes import ModelUse

_SECOND = 1_000_000_000


class Now:
    def __init__(self) -> None:
        self.s = 50.0

    def __call__(self) -> float:
        return self.s


def series(**own: Any) -> Series:
    return Series(
        {"name": own.pop("model", "m"), "version": "1", "zmqtriton": own},
        {"metric_tags": {"a": "b"}},
    )


def lines(all_series: list[Series], *stubs: dict[str, Any]) -> list[str]:
    processes = [{"role": "broker", "restarts": 9}, *({"role": "stub", **stub} for stub in stubs)]
    text = render_models(all_series, {"processes": processes}, Busyness(1.0), ModelUse())
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_a_model_tells_what_it_executes_and_how_long_it_did() -> None:
    own = {
        "unanswered": 7,
        "pending": 4,
        "deadlines": 3,
        "overdue": {"count": 2},
        "instances": 2,
        "busy_ns": 3 * _SECOND // 2,
    }
    stub = {"model": "m", "version": 1, "restarts": 2, "pid": 0, "state": "BACKOFF"}

    rows = lines([series(**own)], stub, stub, {**stub, "restarts": 0, "state": "DRAINING"})

    of = '{_a="b",model="m",version="1"}'
    assert rows == [
        f"zmqtriton_executing_count{of} 3",
        f"zmqtriton_deadlines_exceeded_total{of} 3",
        f"zmqtriton_execution_deadlines_exceeded_total{of} 2",
        f"zmqtriton_instances{of} 2",
        f"zmqtriton_instances_wanted{of} 2",
        f"zmqtriton_instance_busy_ratio{of} 0",
        f"zmqtriton_instance_busy_seconds_total{of} 1.5",
        f"zmqtriton_instance_restarts_total{of} 4",
    ]


@pytest.mark.parametrize(("growth", "figure"), [(None, 0), ((100, 1000, 5000), 40)])
def test_the_growth_of_a_model_is_that_of_the_instance_that_grows_most(
    growth: tuple[int, int, int] | None, figure: int
) -> None:
    stub = {"model": "m", "version": 1, "instance": "m_0_0", "pid": os.getpid()}
    stub |= {"restarts": 0, "state": "READY", "executing_s": 0.0}
    worst = growth and MemoryGrowth(*growth)._asdict()
    least = growth and MemoryGrowth(1000, 1000, 5000)._asdict()

    rows = lines([series()], {**stub, "growth": worst}, {**stub, "growth": least})

    assert f'zmqtriton_model_growth_bytes{{_a="b",model="m",version="1"}} {figure}' in rows


def test_an_ensemble_has_no_instances_to_tell_of() -> None:
    rows = lines([series(unanswered=2, pending=0, instances=0, busy_ns=0)])

    of = '{_a="b",model="m",version="1"}'
    assert rows == [
        f"zmqtriton_executing_count{of} 2",
        f"zmqtriton_deadlines_exceeded_total{of} 0",
        f"zmqtriton_execution_deadlines_exceeded_total{of} 0",
    ]


def test_how_long_each_instance_executes_is_told_beside_what_is_usual() -> None:
    stub = {"model": "m", "version": 1, "restarts": 0, "pid": 9, "state": "READY"}
    instances = [
        {**stub, "instance": "m_0_0", "executing_s": 61.5},
        {**stub, "instance": "m_0_1", "executing_s": 0.0},
        {**stub, "instance": "m_0_2", "executing_s": 0.0, "pid": 0},
    ]

    rows = lines([series(instances=2, usual_execution_ns=_SECOND // 50)], *instances)

    of = '_a="b",model="m"'
    ages = [row.removeprefix("zmqtriton_") for row in rows if "execution_seconds" in row]
    assert ages == [
        f'oldest_execution_seconds{{{of},model_instance="m_0_0",version="1"}} 61.5',
        f'oldest_execution_seconds{{{of},model_instance="m_0_1",version="1"}} 0',
        f'usual_execution_seconds{{{of},version="1"}} 0.02',
    ]


def test_the_ratio_is_that_of_all_instances_in_the_last_interval() -> None:
    now = Now()
    busyness = Busyness(2.0, now)
    busyness.look([series(instances=2, busy_ns=0)])

    now.s += 4
    busyness.look([series(instances=2, busy_ns=6 * _SECOND), series(model="e", instances=0)])
    ratio = busyness.of(series())
    now.s += 1  # a second scraper
    busyness.look([series(instances=2, busy_ns=8 * _SECOND)])

    assert (0.75, 0.75) == (ratio, busyness.of(series()))
    now.s += 3
    busyness.look([series(instances=2, busy_ns=8 * _SECOND)])
    assert busyness.of(series()) == 0.25


def test_a_model_that_is_loaded_anew_begins_at_nothing() -> None:
    now = Now()
    busyness = Busyness(2.0, now)

    for busy_ns in (0, 5 * _SECOND, _SECOND):
        now.s += 10
        busyness.look([series(instances=1, busy_ns=busy_ns)])

    assert busyness.of(series()) == 0
    assert busyness.of(series(model="unknown")) == 0


_PAGE = (
    "# HELP a Text {of} a\n# TYPE a gauge\na 1\nb{} 2\n"
    'c_bucket{model="m",le="0.5"} 3\nd{model="},team=\\"x\\"{"} 4\ne{team="own"} 5\n'
)


def test_all_samples_have_the_labels_and_keep_their_own() -> None:
    page = add_labels(_PAGE, [("team", 'a"b\\c\nd'), ("xteam", "y")])

    labels = r'team="a\"b\\c\nd",xteam="y"'
    assert page == (
        f"# HELP a Text {{of}} a\n# TYPE a gauge\na{{{labels}}} 1\nb{{{labels}}} 2\n"
        f'c_bucket{{{labels},model="m",le="0.5"}} 3\n'
        f'd{{{labels},model="}},team=\\"x\\"{{"}} 4\n'
        'e{xteam="y",team="own"} 5\n'
    )
    samples = [s for family in text_string_to_metric_families(page) for s in family.samples]
    assert ['a"b\\c\nd'] * 4 + ["own"] == [sample.labels["team"] for sample in samples]


def test_a_value_that_ends_as_a_label_begins_is_a_value() -> None:
    assert 'a{team="x",b=",team="} 1\n' == add_labels('a{b=",team="} 1\n', [("team", "x")])


def test_a_page_without_labels_is_the_same() -> None:
    assert add_labels(_PAGE, []) is _PAGE
