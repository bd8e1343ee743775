"""The chosen delay and size: small loads, each for one reason, and changes of a load.

test_choice_loads.py has all kinds of loads.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.bench.following import CHANGES, seconds_until_followed
from tests.broker.scheduling.batch_loads import (
    ARRIVALS,
    LAWS,
    MOST,
    MS,
    SECOND,
    LoadRun,
    config_of,
    poisson,
)
from tests.broker.world import request
from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton.broker.scheduling.choosing import BatchChoice, Durations, Pair, PastArrivals
from zmqtriton.broker.scheduling.fitting import queue_of
from zmqtriton.config.batching import target_of


def _mean_ms(config: dict[str, object], law: str, instances: int, times: list[float]) -> float:
    return LoadRun(config, LAWS[law], instances).open(times).mean / MS


def _times(arrivals: str, law: str, seconds: int, rate: float) -> list[float]:
    return [*ARRIVALS[arrivals](random.Random(f"{arrivals}{law}"), rate, seconds)]


def test_the_hope_for_a_size_leaves_out_none_that_is_known() -> None:
    times = _times("poisson", "linear", 6, 500)

    own = _mean_ms(config_of(0, MOST, "latency"), "linear", 2, times)

    assert own < 1.05 * _mean_ms(config_of(0, 1), "linear", 2, times)


def test_a_size_between_two_that_were_executed_is_found() -> None:
    times = _times("poisson", "step", 6, 1200)

    own = LoadRun(config_of(0, MOST, "p99 80 ms"), LAWS["step"], 4).open(times)

    best = LoadRun(config_of(32_000, 6), LAWS["step"], 4).open(times)
    assert own.busy < 1.05 * best.busy
    assert own.late(80 * MS) <= 0.01


def test_a_queue_that_a_burst_makes_long_shortens_no_delay() -> None:
    times = _times("bursts", "flat", 6, 800)

    own = LoadRun(config_of(0, MOST, "p99 80 ms"), LAWS["flat"], 1).open(times)

    assert own.busy < 1.1 * LoadRun(config_of(60_000, MOST), LAWS["flat"], 1).open(times).busy


def test_clients_that_come_between_the_ends_of_small_batches_have_not_waited_for_them() -> None:
    times = [*ARRIVALS["on_off"](random.Random("on_offlinearz"), 300, 10)]

    own = _mean_ms(config_of(0, MOST, "latency"), "linear", 1, times)

    assert own < 1.2 * _mean_ms(config_of(0, 1), "linear", 1, times)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_load_is_followed_within_seconds(change: str) -> None:
    assert seconds_until_followed(CHANGES[change], "flat", "a") <= 4


def test_a_replay_is_what_the_queue_does() -> None:
    times = [*poisson(random.Random(2), 500, 6)]
    trace = PastArrivals((round(at * SECOND), 1) for at in times)
    durations = Durations({rows: round(LAWS["affine"](rows) * MS) for rows in range(1, MOST + 1)})
    for delay_us, size in ((0, MOST), (2000, 8), (9000, 4)):
        run = LoadRun(config_of(delay_us, size), LAWS["affine"], 2, spread=0, skipped=0)
        result = run.open(times)

        outcome = trace.replay(Pair(delay_us * 1000, size), durations, 2, 20 * MS)

        assert sum(result.latencies) == outcome.waited_ns
        assert result.busy == outcome.busy_ns
        assert sum(one > 20 * MS for one in result.latencies) == outcome.late


def test_times_of_other_sizes_follow_from_those_next_to_them() -> None:
    durations = Durations({2: 100, 4: 200})

    assert [100, 100, 150, 200, 400] == [durations[rows] for rows in (1, 2, 3, 4, 8)]


def test_a_queue_says_what_it_chose() -> None:
    queue = queue_of(config_of(0, MOST, "p99 80 ms"))
    choice = queue.choice
    assert choice is not None

    choice.pair = Pair(3 * MS, 8)
    queue.choose_by(choice)  # type: ignore[attr-defined]

    report = queue.report()  # type: ignore[attr-defined]
    assert ("p99 80 ms", 3000, 8) == (report["auto"], report["delay_us"], report["target"])
    assert None is queue_of(config_of(0, MOST)).choice


@pytest.mark.parametrize(
    ("text", "limit_ns", "late"),
    [
        ("latency", 0, 0),
        ("throughput", 0, 0),
        ("p99 200 ms", 200 * MS, 0.01),
        ("p50 1.5s", 1500 * MS, 0.5),
    ],
)
def test_targets_are_read(text: str, limit_ns: int, late: float) -> None:
    target = target_of(text)

    assert target is not None
    assert limit_ns == target.limit_ns
    assert late == pytest.approx(target.late)


@pytest.mark.parametrize("text", ["", "fast", "p99", "p98 20 ms", "p99 0 ms", "p99 20"])
def test_other_texts_are_no_targets(text: str) -> None:
    assert None is target_of(text)


def test_nothing_is_chosen_before_an_execution() -> None:
    target = target_of("latency")
    assert target is not None
    choice = BatchChoice(target, MOST, ())

    choice.learn([], 1, 1, SECOND)

    assert Pair(0, MOST) == choice.pair


@pytest.mark.parametrize(("deadline_ms", "timeout_ms"), [(100, 0), (1000, 100), (0, 100)])
def test_a_chosen_delay_leaves_time_for_an_execution(deadline_ms: int, timeout_ms: int) -> None:
    config = config_of(0, MOST, "p99 2 s")
    policy = {"default_timeout_microseconds": 1000 * timeout_ms}
    config["dynamic_batching"]["default_queue_policy"] = policy
    run = LoadRun(config, LAWS["flat"], 1)
    now = run.open(poisson(random.Random(3), 20, 8)).end
    queue = run.queue
    assert queue.report()["delay_us"] > 150_000
    generation: Any = SimpleNamespace(unanswered=1)
    row = request(1, deadline_ns=now + deadline_ms * MS if deadline_ms else 0)

    queue.levels.add(InflightRequest(1, row, b"", generation, now))

    assert not queue.pop_batch(now)
    assert now < queue.due_ns <= now + 90 * MS
    assert queue.pop_batch(queue.due_ns)
