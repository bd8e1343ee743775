"""Imagined runs whose outcome can be counted by hand."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from zmqtriton_extras.bench.simulation.run import (
    MS,
    Arrival,
    Clients,
    Cost,
    Pattern,
    SimulationResult,
    SimulationRun,
    fit_cost,
    from_lines,
)


def run(
    config: dict[str, Any], cost: Cost, arrivals: list[Arrival] | Clients, instances: int = 1
) -> SimulationResult:
    names = [f"m_{number}" for number in range(instances)]
    imagined = SimulationRun(json.dumps({"name": "m", **config}), names, cost, seed=1)
    if isinstance(arrivals, Clients):
        return imagined.run_closed_loop(arrivals)
    return imagined.open(arrivals)


def every_ms(*times: float) -> list[Arrival]:
    return [Arrival(round(at * MS)) for at in times]


def test_requests_that_do_not_meet_take_as_long_as_they_are_executed() -> None:
    outcome = run({}, Cost(10), every_ms(0, 20, 40))

    assert outcome.latencies_ns == [10 * MS] * 3
    assert (outcome.answered, outcome.queued_ns, outcome.busy_ns) == (3, 0, 30 * MS)


def test_who_comes_while_the_instance_is_busy_waits_for_it() -> None:
    outcome = run({}, Cost(10), every_ms(0, 1, 2))

    assert outcome.latencies_ns == [10 * MS, 19 * MS, 28 * MS]
    assert outcome.queued_ns == (9 + 18) * MS


def test_two_instances_execute_at_the_same_time() -> None:
    outcome = run({}, Cost(10), every_ms(0, 0, 0, 0), instances=2)

    assert outcome.latencies_ns == [10 * MS, 10 * MS, 20 * MS, 20 * MS]


def test_a_batch_is_filled_up_to_its_preferred_size_within_the_delay() -> None:
    batching = {"preferred_batch_size": [4], "max_queue_delay_microseconds": 10_000}
    config = {"max_batch_size": 8, "dynamic_batching": batching}

    # Four arrive within the delay; the fifth waits all of it alone.
    outcome = run(config, Cost(1, 1), every_ms(0, 1, 2, 3, 20))

    assert outcome.batches == {4: 1, 1: 1}
    assert outcome.latencies_ns == [8 * MS, 7 * MS, 6 * MS, 5 * MS, 12 * MS]


def test_a_batch_costs_what_is_in_it() -> None:
    outcome = run({"max_batch_size": 8}, Cost(2, 3), [Arrival(0, batch=5)])

    assert outcome.latencies_ns == [17 * MS]
    assert (outcome.answered, outcome.inferences) == (1, 5)


def test_a_full_queue_refuses_in_the_servers_words() -> None:
    policy = {"default_queue_policy": {"max_queue_size": 2}}
    config = {"max_batch_size": 1, "dynamic_batching": policy}

    outcome = run(config, Cost(10), every_ms(0, 1, 2, 3, 4))

    assert dict(outcome.refused) == {"[request id: <id_unknown>] Exceeds maximum queue size": 2}
    assert outcome.answered == 3


def test_clients_ask_again_when_they_are_answered() -> None:
    outcome = run({}, Cost(10), Clients(number=2, requests=6))

    # The first waits for nobody; from then on each finds the other being executed.
    assert outcome.latencies_ns == [10 * MS] + [20 * MS] * 5
    assert outcome.end_ns - 1 == 60 * MS


def test_sequences_keep_their_slots_and_all_end() -> None:
    direct = {"direct": {}, "max_sequence_idle_microseconds": 1_000_000}
    config = {"max_batch_size": 2, "sequence_batching": direct}

    outcome = run(config, Cost(1), Clients(number=5, requests=57, length=4))

    # Those that were begun when the last of 57 was sent go on to their ends.
    assert (outcome.answered >= 57, 0) == (True, outcome.answered % 4)
    assert outcome.refused == {}
    assert max(outcome.batches) <= 2


@pytest.mark.parametrize(
    ("kind", "burst", "times"),
    [("even", 1, [0, 10, 20, 30]), ("burst", 2, [0, 0, 20, 20])],
)
def test_arrivals_follow_their_pattern(kind: str, burst: int, times: list[int]) -> None:
    pattern = Pattern(rate=100, requests=4, kind=kind, burst=burst)

    assert [at * MS for at in times] == [a.at_ns for a in pattern.arrivals(random.Random(1))]


def test_random_arrivals_keep_their_rate() -> None:
    pattern = Pattern(rate=100, requests=20_000)

    last = list(pattern.arrivals(random.Random(1)))[-1]

    assert last.at_ns / 1e9 == pytest.approx(200, rel=0.05)


def test_the_same_seed_is_the_same_run() -> None:
    arrivals = list(Pattern(rate=300, requests=500).arrivals(random.Random(3)))
    cost = Cost(2, 1, spread=0.3)

    first, second = run({}, cost, arrivals), run({}, cost, arrivals)

    assert first == second
    assert len(set(first.latencies_ns)) > 100


def test_what_was_measured_is_a_base_and_a_part_for_each_inference() -> None:
    measured = [(size, count, count * (5 + 2 * size) * MS) for size, count in ((1, 7), (4, 2))]

    cost = fit_cost(measured)

    assert (cost.base_ms, cost.each_ms) == pytest.approx((5, 2))


def test_one_size_alone_is_all_base() -> None:
    assert Cost(base_ms=3, each_ms=0) == fit_cost([(8, 10, 30 * MS)])


def test_nothing_can_be_learned_from_nothing() -> None:
    with pytest.raises(ValueError, match="have no executions"):
        fit_cost([])


def test_recorded_arrivals_may_name_their_batch_sizes() -> None:
    lines = ["# seconds, size\n", "\n", "0.5, 4\n", "0.25\n"]

    assert [Arrival(250 * MS, 1), Arrival(500 * MS, 4)] == from_lines(iter(lines))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("soon", "line 1: 'soon' must begin with a time in seconds"),
        ("1 many", "line 1: '1 many' must begin with a time"),
        ("1 0", "line 1: '1 0' must be a time, and a size of 1 or more"),
        ("nan", "line 1: 'nan' must be a time, and a size of 1 or more"),
        ("-1", "line 1: '-1' must be a time, and a size of 1 or more"),
    ],
)
def test_a_line_that_is_wrong_is_named(line: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        from_lines(iter([line]))
