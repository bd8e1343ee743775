"""The search for settings, over models whose rates are formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from zmqtriton_extras.tuning.search import (
    Goal,
    Row,
    Search,
    Setting,
    config_lines,
    first_setting,
    trial_config,
)
from zmqtriton_floor.errors import InvalidArgument

FIRST = Setting(1, 16, "0")
THROUGHPUT = Goal.parse("throughput")


def row_of(rate: float, p99_ms: float = 10, **more: Any) -> dict[str, Any]:
    return {"requests_per_s": rate, "p99_ms": p99_ms, "failed": 0, "compute_ms": 10, **more}


def found(goal: Goal, cores: int, law: Callable[[Setting], Row], first: Setting = FIRST) -> Search:
    search = Search(first, goal, cores)
    search.run(lambda setting, best: law(setting))
    return search


def test_more_instances_are_tried_while_they_help() -> None:
    search = found(
        THROUGHPUT, 8, lambda one: row_of(100.0 * min(one.instances, 4) * (one.batch == 16))
    )

    assert Setting(4, 16, "0") == search.best
    assert len(search.rows) < 20


def test_a_smaller_batch_is_taken_for_a_limit_of_time() -> None:
    goal = Goal.parse("p99 50 ms")

    search = found(goal, 1, lambda one: row_of(10.0 * one.batch, 10.0 * one.batch))

    assert 4 == search.best.batch


def test_without_a_setting_in_time_the_nearest_is_taken() -> None:
    search = found(Goal.parse("p99 1 ms"), 1, lambda one: row_of(9, 10.0 + one.batch))

    assert 1 == search.best.batch
    assert 0 == search.goal.value(search.rows[search.best])[0]


def test_failures_never_win() -> None:
    search = found(
        THROUGHPUT, 4, lambda one: row_of(100.0 * one.instances, failed=int(one.instances > 1))
    )

    assert 1 == search.best.instances


def test_the_delay_is_tried_last_and_auto_is_one() -> None:
    search = found(THROUGHPUT, 1, lambda one: row_of(200 if one.delay == "auto" else 100))

    assert Setting(1, 16, "auto") == search.best
    assert {"auto", "0", "1000", "3000", "10000"} == {one.delay for one in search.rows}


def test_a_model_without_batches_has_instances_alone() -> None:
    search = found(THROUGHPUT, 2, lambda one: row_of(one.instances), Setting(1, 0, "0"))

    assert {Setting(1, 0, "0"), Setting(2, 0, "0")} == search.rows.keys()
    assert ["instance_group { count: 2 }", "@model(instances=2)"] == config_lines(
        search.best, THROUGHPUT
    )


def test_the_search_ends_when_there_is_no_time() -> None:
    search = Search(Setting(1, 16, "0"), THROUGHPUT, 8)

    search.run(lambda setting, best: None if len(search.rows) == 2 else row_of(1))

    assert 2 == len(search.rows)


def test_a_trial_changes_three_settings_and_no_others() -> None:
    config = {
        "max_batch_size": 8,
        "dynamic_batching": {"preferred_batch_size": [8], "preserve_ordering": True},
        "instance_group": [{"count": 1, "kind": "KIND_CPU"}],
        "parameters": {"own": {"string_value": "1"}},
    }
    goal = Goal.parse("p99 50 ms")

    fixed = trial_config(config, Setting(2, 4, "500"), goal)
    chosen = trial_config(fixed, Setting(2, 4, "auto"), goal)

    assert {"preserve_ordering": True, "max_queue_delay_microseconds": 500} == fixed[
        "dynamic_batching"
    ]
    assert [{"count": 2, "kind": "KIND_CPU"}] == fixed["instance_group"]
    assert Setting(2, 4, "500") == first_setting(fixed)
    assert {"preserve_ordering": True} == chosen["dynamic_batching"]
    assert {"own", "BATCH_DELAY", "BATCH_TARGET"} == chosen["parameters"].keys()
    assert Setting(2, 4, "auto") == first_setting(chosen)


def test_the_lines_to_write_are_those_of_the_setting() -> None:
    goal = Goal.parse("p99 50 ms")

    chosen = config_lines(Setting(2, 4, "auto"), goal)
    fixed = config_lines(Setting(2, 4, "500"), goal)

    assert 'parameters { key: "BATCH_TARGET" value { string_value: "p99 50 ms" } }' in chosen
    assert '@model(instances=2, batch=4, delay="auto", target="p99 50 ms")' == chosen[-1]
    assert "dynamic_batching { max_queue_delay_microseconds: 500 }" in fixed
    assert "@model(instances=2, batch=4, delay_ms=0.5)" == fixed[-1]


def test_another_target_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="must be throughput, or such as"):
        Goal.parse("p99 soon")


def test_a_delay_that_is_kept_is_in_each_trial() -> None:
    search = Search(Setting(1, 8, "auto"), THROUGHPUT, 2, keeps_delay=True)

    search.run(lambda setting, best: row_of(100))

    assert {"auto"} == {setting.delay for setting in search.rows}
