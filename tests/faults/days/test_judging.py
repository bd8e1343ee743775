"""The steps of a day are those of its seed, and days are judged."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.days.clients import MANY_STREAMS
from tests.faults.days.judging import (
    MACHINE,
    STILL,
    Cause,
    Failure,
    Harm,
    Timeline,
    excuse_handed,
    find_cause,
)
from tests.faults.days.operations import OPERATIONS
from tests.faults.days.steps import Choice, choose_step

FAILURE = Failure("c", "m", "http", "c-1", sent_ns=100, ended_ns=200, text="503", is_lost=False)
LOST = FAILURE._replace(is_lost=True)
NO_JOURNAL = FAILURE._replace(own_id="")


def harm(*roles: str, pids: set[int] | None = None, **changes: Any) -> Harm:
    return Harm(150, STILL, "", frozenset(roles), frozenset(pids or ()), "m")._replace(**changes)


@pytest.mark.parametrize(
    ("failure", "begun_in", "harms", "cause"),
    [
        (FAILURE, {7}, [harm("stub", pids={7})], Cause.STUB),
        # the stub may have been killed long before its model's client is told
        (FAILURE, {7}, [harm("stub", pids={7}, begun_ns=50, ended_ns=60)], Cause.STUB),
        (FAILURE, {8}, [harm("stub", pids={7})], Cause.UNEXPLAINED),
        (FAILURE, set(), [harm("stub", pids={7})], Cause.NOT_BEGUN),
        (FAILURE, set(), [harm("broker")], Cause.NOT_BEGUN),
        (FAILURE, {7}, [harm("broker")], Cause.BROKER),
        (FAILURE, {7}, [harm("broker", begun_ns=50, ended_ns=60)], Cause.UNEXPLAINED),
        (FAILURE, {7}, [harm("broker", begun_ns=300)], Cause.UNEXPLAINED),
        (LOST, set(), [harm("http")], Cause.FRONTEND),
        (LOST, set(), [harm("grpc")], Cause.NOT_BEGUN),
        (FAILURE, set(), [harm("http")], Cause.NOT_BEGUN),
        (LOST, set(), [harm("supervisor")], Cause.SERVER),
        (FAILURE, set(), [harm(MACHINE)], Cause.MACHINE),
        (FAILURE, set(), [], Cause.NOT_BEGUN),
        (NO_JOURNAL, set(), [harm("stub", pids={7})], Cause.STUB),
        (NO_JOURNAL, set(), [harm("stub", pids={7}, model="n")], Cause.UNEXPLAINED),
        (NO_JOURNAL, set(), [harm("broker")], Cause.BROKER),
        (NO_JOURNAL, set(), [], Cause.UNEXPLAINED),
    ],
)
def test_a_request_may_fail_where_it_was_begun_and_ended_by_a_fault(
    failure: Failure, begun_in: set[int], harms: list[Harm], cause: Cause
) -> None:
    assert cause is find_cause(failure, frozenset(begun_in), harms)


def test_a_promise_is_broken_where_nothing_explains_the_failure() -> None:
    assert {Cause.NOT_BEGUN, Cause.UNEXPLAINED} == {c for c in Cause if c.is_broken_promise}


def test_one_request_for_each_ended_stub_may_have_been_handed_to_it() -> None:
    harms = [harm("stub", pids={7}), harm("stub", pids={8}, begun_ns=300), harm("broker")]

    judged = excuse_handed([(Cause.NOT_BEGUN, FAILURE)] * 3 + [(Cause.BROKER, FAILURE)], harms)

    assert [Cause.HANDED, Cause.NOT_BEGUN, Cause.NOT_BEGUN, Cause.BROKER] == [
        cause for cause, _ in judged
    ]


def test_as_many_requests_as_an_ended_process_had_instances_may_have_been_handed_to_it() -> None:
    judged = excuse_handed([(Cause.NOT_BEGUN, FAILURE)] * 3, [harm("stub", pids={7}, instances=2)])

    assert [Cause.HANDED, Cause.HANDED, Cause.NOT_BEGUN] == [cause for cause, _ in judged]


def test_a_request_was_not_handed_to_a_stub_of_a_model_that_has_no_part_in_it() -> None:
    harms = [harm("stub", pids={7}, model="journal")]
    failures = [(Cause.NOT_BEGUN, FAILURE), (Cause.NOT_BEGUN, FAILURE._replace(model="asking"))]

    judged = excuse_handed(failures, harms)

    assert [Cause.NOT_BEGUN, Cause.HANDED] == [cause for cause, _ in judged]


def test_an_answer_is_of_a_state_that_was_while_its_request_was_under_way() -> None:
    now_ns = [100]
    stamps = Timeline(1, lambda: now_ns[0])
    stamps.widen(2)
    now_ns[0] = 200
    stamps.settle(2)

    assert {1} == stamps.allowed(10, 90)
    assert {1, 2} == stamps.allowed(90, 150)
    assert {1, 2} == stamps.allowed(150, 250)
    assert {2} == stamps.allowed(201, 250)
    assert {1, 2} == stamps.allowed(10, 250)
    assert {2} == stamps.newest


CHOICE = Choice(
    1, "explicit", ["kill broker", "kill stub"], ["stop stub"], sorted(OPERATIONS), steering=0.75
)


def test_a_step_is_the_same_whatever_came_before() -> None:
    day = [choose_step(CHOICE, number) for number in range(50)]

    assert day[37] == choose_step(CHOICE, 37)
    assert day != [choose_step(CHOICE._replace(seed=2), number) for number in range(50)]
    assert day != [choose_step(CHOICE._replace(mode="poll"), number) for number in range(50)]


def test_operations_at_once_are_of_different_models() -> None:
    pairs = [
        step.operations
        for step in (choose_step(CHOICE, number) for number in range(500))
        if len(step.operations) == 2
    ]

    assert len(pairs) > 50
    assert [] == [p for p in pairs if OPERATIONS[p[0]].model == OPERATIONS[p[1]].model]


def test_a_day_without_operations_has_faults_alone() -> None:
    calm = [choose_step(CHOICE._replace(operations=[]), number) for number in range(50)]

    assert {(0, 1)} == {(len(step.operations), len(step.faults)) for step in calm}


@pytest.mark.addons
def test_the_model_with_many_streams_is_one_that_the_decorator_takes() -> None:
    names: dict[str, Any] = {}
    exec(MANY_STREAMS, names)
    many = names["Many"]()

    assert 1 == many.cost("a", 2)
    assert ["a 0"] == many.step([many.admit("a", 2)])
