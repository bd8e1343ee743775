"""Reports on requests, and counts of responses."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from tests.broker.world import MILLISECOND, S2, SECOND, BrokerHarness, F, S, request
from zmqtriton.broker.metrics.reports import WINDOW_NS, RecentTimes
from zmqtriton.broker.metrics.statistics import MAX_LATENCIES, ModelStatistics, ResponseCounts
from zmqtriton_floor import wire
from zmqtriton_floor.errors import ProtocolError
from zmqtriton_stub.execution.response_counts import (
    CANCEL,
    EMPTY,
    FAIL,
    MAX_INDEXES,
    SUCCESS,
    ResponseCounter,
)

# ----------------------------------------------------------------------------- reports
# The load of models, as balancers ask for it.


def document(world: BrokerHarness, model: str = "m") -> dict[str, Any]:
    return world.statistics(model, wire.LOAD)


def load(world: BrokerHarness) -> dict[str, Any]:
    [entry] = document(world)["loads"]
    return entry


@pytest.fixture
def world() -> BrokerHarness:
    return BrokerHarness.serving(S, config={"instance_group": [{"count": 2}]})


@pytest.mark.row("L05")
def test_what_waits_and_what_is_executed_are_counted(world: BrokerHarness) -> None:
    world.infer(F, request(1), request(2), request(3))

    row = load(world)

    assert (2, 1, 3) == (row["queued"], row["executing"], row["unanswered"])
    assert (1, 2) == (row["ready"], row["instances"])
    assert (1, 1) == (row["slots"], row["busy_slots"])


def test_all_models_are_told_of_and_those_that_end_are_not(world: BrokerHarness) -> None:
    world.add_generation(2, config={"name": "n"})
    before = [entry["name"] for entry in document(world, "")["loads"]]

    world.core.retire(wire.Retire(2))

    assert ["m", "n"] == before
    assert ["m"] == [entry["name"] for entry in document(world, "")["loads"]]
    assert [] == document(world, "gone")["loads"]


def test_mean_times_are_those_of_the_last_seconds() -> None:
    counters, recent = ModelStatistics(), RecentTimes()
    first = recent.read(counters, SECOND)
    counters.queue.add(2, 50)
    counters.compute.add(2, 7, 70, 0)

    soon = recent.read(counters, 3 * SECOND)
    still = recent.read(counters, SECOND + WINDOW_NS)
    later = recent.read(counters, 4 * SECOND + WINDOW_NS)

    assert {"requests": 0, "queue_ns": 0, "compute_ns": 0} == first
    assert {"requests": 2, "queue_ns": 50, "compute_ns": 77} == soon == still
    assert 0 == later["requests"]


# ------------------------------------------------------------------- how busy instances are
def ages(world: BrokerHarness) -> dict[str, int]:
    """Return for how long each instance executes, by its serial."""
    return dict(world.statistics()["zmqtriton"]["execution_ages_ns"])


def test_an_execution_is_as_old_as_it_is_whatever_others_do(world: BrokerHarness) -> None:
    world.add_stub(S2)
    world.infer(F, request(1), request(2))
    world.now += 100
    world.finish_batch(S2)
    world.infer(F, request(3))
    world.now += 10

    assert {str(S): 110, str(S2): 10} == ages(world)
    own = world.figures()
    assert (110, 6) == (own["oldest_execution_ns"], own["usual_execution_ns"])
    world.finish_batch(S)
    world.finish_batch(S2)
    assert {} == ages(world)


# ------------------------------------------------------------------- readings for the history
def read(world: BrokerHarness) -> dict[str, Any]:
    return world.statistics("", wire.READINGS)


def answer(world: BrokerHarness, own_id: int, after_ns: int) -> None:
    world.infer(F, request(own_id))
    world.tick(after_ns)
    world.finish_batch(S)


def test_what_waits_is_counted(world: BrokerHarness) -> None:
    read(world)

    world.infer(F, request(1), request(2))
    world.tick(1)

    assert [1] == [row["pending"] for row in read(world)["readings"]]


def test_what_was_removed_since_the_last_question_is_not_forgotten(world: BrokerHarness) -> None:
    read(world)
    answer(world, 1, MILLISECOND)
    world.infer(F, request(2))

    world.core.remove(wire.RemoveGeneration(1, "gave up"), world.now)
    world.tick(1)

    [row] = read(world)["readings"]
    assert ["m", 1, 1, 0] == [row[key] for key in ("model", "succeeded", "failed", "pending")]
    world.tick(1)
    assert [] == read(world)["readings"]


def test_a_model_that_was_quiet_is_measured_whole_again(world: BrokerHarness) -> None:
    counters = world.core.generations.by_number[1].statistics
    read(world)
    for number in range(8 * MAX_LATENCIES):
        arrived = SimpleNamespace(arrived_ns=number, elements=1, is_cancelled=False)
        counters.record_success(arrived, number + 1)
    world.tick(1)
    assert 1 == len(read(world)["readings"])
    assert counters.latencies_mask, "a busy model's latencies are a sample"

    world.tick(1)
    assert [] == read(world)["readings"]
    answer(world, 1, MILLISECOND)
    answer(world, 2, 3 * MILLISECOND)

    [row] = read(world)["readings"]
    assert (MILLISECOND, 3 * MILLISECOND) == (row["p50_ns"], row["p99_ns"])


def test_the_latencies_of_an_interval_are_not_those_of_the_next(world: BrokerHarness) -> None:
    read(world)
    answer(world, 1, 9 * MILLISECOND)
    assert 9 * MILLISECOND == read(world)["readings"][0]["p99_ns"]

    answer(world, 2, MILLISECOND)

    assert MILLISECOND == read(world)["readings"][0]["p99_ns"]


# --------------------------------------------------------------------- response counts


def test_what_a_stub_counts_is_told_by_index_and_kind() -> None:
    tallies, counts = ResponseCounter(), ResponseCounts()

    for index, kind in ((0, SUCCESS), (0, SUCCESS), (0, FAIL), (10, EMPTY), (2, CANCEL)):
        tallies.add(index, kind, 100, 1)
        counts.add(tallies.take(is_last=True))

    none = {"count": 0, "ns": 0}
    nothing = dict.fromkeys(("compute_infer", "compute_output", "success", "fail"), none)
    assert list(counts.as_dict()) == ["0", "2", "10"]
    assert counts.as_dict() == {
        "0": {
            "compute_infer": {"count": 3, "ns": 300},
            "compute_output": {"count": 3, "ns": 3},
            "success": {"count": 2, "ns": 202},
            "fail": {"count": 1, "ns": 101},
            "empty_response": none,
            "cancel": none,
        },
        "2": nothing | {"empty_response": none, "cancel": {"count": 1, "ns": 101}},
        "10": nothing | {"empty_response": {"count": 1, "ns": 101}, "cancel": none},
    }


def test_what_a_stub_counts_is_in_the_statistics_of_its_model() -> None:
    world = BrokerHarness.serving(S, config={"model_transaction_policy": {"decoupled": True}})
    tallies = ResponseCounter()
    tallies.add(0, SUCCESS, 100, 1)

    world.core.results(S, wire.Results([], [], [], tallies.take(is_last=True)), [], world.now)

    [row] = world.statistics()["model_stats"]
    assert {"count": 1, "ns": 101} == row["response_stats"]["0"]["success"]


def test_a_stub_tells_at_once_when_its_last_stream_has_ended_else_now_and_then() -> None:
    tallies = ResponseCounter()

    tallies.add(0, SUCCESS, 1, 1)
    counts = tallies.take(is_last=False)
    tallies.add(0, SUCCESS, 1, 1)

    assert counts
    assert not tallies.take(is_last=False)
    assert tallies.take(is_last=True) == counts
    assert not tallies.take(is_last=True)


def test_streams_of_any_length_take_bounded_memory() -> None:
    tallies = ResponseCounter()

    for index in range(2 * MAX_INDEXES):
        tallies.add(index, SUCCESS, 10**12, 10**12)

    text = tallies.take(is_last=True)
    assert len(json.loads(text)) == MAX_INDEXES
    assert len(text) < 1 << 17


@pytest.mark.parametrize(
    "message",
    [
        "",
        "{",
        "7",
        "[7]",
        "[[0, 1]]",
        [[0] * 12],
        [[0] * 14],
        [[1024] + [0] * 12],
        [[0, -1] + [0] * 11],
        [[0, "1"] + [0] * 11],
        [[0, True] + [0] * 11],
    ],
)
def test_what_makes_no_sense_is_refused(message: Any) -> None:
    counts = ResponseCounts()

    with pytest.raises(ProtocolError):
        counts.add(message if isinstance(message, str) else json.dumps(message))

    assert counts.as_dict() == {}
