"""States, actions and pauses, what must not grow, and the order in which instances finalize."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from tests.supervisor.settings import then
from tests.support.refusals import refusal
from zmqtriton.host.capacity import ProcessorUse
from zmqtriton.logs.guard import guarded
from zmqtriton.supervisor import states
from zmqtriton.supervisor.actions import ListRepository
from zmqtriton.supervisor.backoff import (
    MAX_DEATHS,
    MAX_PAUSE_S,
    MAX_QUICK_RESTARTS,
    WINDOW_S,
    Backoff,
)
from zmqtriton.supervisor.finalize_turns import FinalizeTurns
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.states import GenerationState, InstanceState, ModelState

# ------------------------------------------------------------------------------ states


TABLES = [
    (states.INSTANCE_TRANSITIONS, InstanceState, InstanceState.STOPPED),
    (states.GENERATION_TRANSITIONS, GenerationState, GenerationState.ENDED),
    (states.MODEL_TRANSITIONS, ModelState, ModelState.UNAVAILABLE),
]


def reachable(table: Mapping[tuple[Any, Any], Any], start: Any) -> set[Any]:
    all_states = {start}
    while True:
        more = {after for (before, _), after in table.items() if before in all_states} - all_states
        if not more:
            return all_states
        all_states |= more


@pytest.mark.parametrize(("table", "kind", "end"), TABLES)
def test_every_state_leads_to_the_end(table: Any, kind: Any, end: Any) -> None:
    assert [] == [state for state in kind if end not in reachable(table, state)]


def test_every_state_of_an_instance_is_reached() -> None:
    assert set(InstanceState) == reachable(states.INSTANCE_TRANSITIONS, InstanceState.STOPPED)


def test_an_instance_can_be_stopped_in_every_state() -> None:
    assert set(InstanceState) == {
        s for s, event in states.INSTANCE_TRANSITIONS if event is states.StopRequested
    }


def test_a_process_can_die_in_every_state_that_has_one() -> None:
    assert {
        s for s, event in states.INSTANCE_TRANSITIONS if event is states.ProcessExited
    } == states.ALIVE_STATES


def test_what_is_not_in_the_table_is_an_error_that_names_it() -> None:
    assert (
        refusal(
            states.TransitionError,
            lambda: states.next_state(
                states.INSTANCE_TRANSITIONS,
                InstanceState.STOPPED,
                states.InstanceLoaded(),
                "instance 'x'",
            ),
        )
        == "instance 'x': InstanceLoaded in state STOPPED"
    )


# ----------------------------------------------------------------------------- backoff
# When what has died is started again, and when it is given up.


@pytest.fixture
def backoff() -> Backoff:
    return Backoff()


def test_the_first_restart_is_at_once_and_each_next_one_twice_as_late(backoff: Backoff) -> None:
    pauses = []

    for now_s in range(5):
        backoff.record_death(now_s)
        pauses.append(backoff.pause_s)

    assert [0.0, 0.2, 0.4, 0.8, 1.6] == pauses
    assert not backoff.is_exhausted


def test_too_many_fruitless_deaths_in_a_minute_are_the_end(backoff: Backoff) -> None:
    for now_s in range(MAX_DEATHS + 1):
        backoff.record_death(now_s)

    assert backoff.is_exhausted


def test_old_deaths_do_not_count(backoff: Backoff) -> None:
    for number in range(20):
        backoff.record_death(number * WINDOW_S)

    assert (1, 0.0) == (backoff.consecutive_deaths, backoff.pause_s)


def test_a_pause_stays_at_its_limit_while_nothing_works(backoff: Backoff) -> None:
    now_s, pauses = 0.0, []
    for _ in range(200):
        backoff.record_death(now_s)
        pauses.append(backoff.pause_s)
        now_s += backoff.pause_s + 2.0

    assert {MAX_PAUSE_S} == {*pauses[10:]}


def test_what_had_worked_is_restarted_at_once_time_after_time(backoff: Backoff) -> None:
    for number in range(MAX_QUICK_RESTARTS):
        backoff.record_death(number * 1.5, had_worked=True)
        assert 0.0 == backoff.pause_s
    assert not backoff.is_exhausted


def test_restarts_that_are_all_that_happens_get_rarer_and_never_end(backoff: Backoff) -> None:
    for number in range(MAX_QUICK_RESTARTS + 20):
        backoff.record_death(number * 0.3, had_worked=True)

    assert MAX_PAUSE_S == backoff.pause_s
    assert not backoff.is_exhausted


# -------------------------------------------------------------------------------- plan


def test_a_timer_that_raises_keeps_none_of_the_others_of_its_moment_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plan = Plan()
    called: list[str] = []
    plan.call_later(1, lambda: called.append("first"))
    plan.call_later(1, lambda: [][1])
    plan.call_later(1, lambda: called.append("last"))

    with caplog.at_level(logging.ERROR):
        plan.advance_to(1, guarded)

    assert ["first", "last"] == called
    assert ["a timer has failed"] == [record.getMessage() for record in caplog.records]
    assert plan.next_deadline_s() is None


def test_timers_are_due_in_their_order_and_not_before_their_time() -> None:
    plan = Plan(10.0)
    called: list[str] = []
    plan.call_later(2, lambda: called.append("late"))
    plan.call_later(1, lambda: called.append("soon"))
    assert 11.0 == plan.next_deadline_s()

    plan.advance_to(10.9)
    assert [] == called

    plan.advance_to(11.0)
    assert (["soon"], 12.0) == (called, plan.next_deadline_s())

    plan.advance_to(9.0)
    assert 11.0 == plan.now_s, "time does not go back"

    plan.advance_to(20.0)
    assert (["soon", "late"], None) == (called, plan.next_deadline_s())


def test_a_cancelled_timer_is_neither_called_nor_waited_for() -> None:
    plan = Plan()
    called: list[str] = []
    first = plan.call_later(1, lambda: called.append("first"))
    second = plan.call_later(2, lambda: called.append("second"))
    plan.call_later(3, lambda: called.append("third"))

    second.cancel()
    first.cancel()

    assert 3.0 == plan.next_deadline_s()
    plan.advance_to(3)
    assert ["third"] == called


def test_an_answer_is_taken_once_by_the_call_that_expects_it() -> None:
    plan = Plan()
    answers: list[str] = []
    for _ in range(2):
        then(plan.ask(ListRepository), answers.append)
    asked, forgotten = (a.ticket for a in plan.take_actions() if isinstance(a, ListRepository))
    assert asked != forgotten

    plan.forget(forgotten)
    for ticket in (forgotten, asked, asked, 99):
        plan.answer(ticket, f"to {ticket}")

    assert [f"to {asked}"] == answers
    plan.forget(99)


# ---------------------------------------------------------------------------------- finalize turns
# The order in which instances finalize.


class Machine:
    """Two cores, and processes that compute, wait for a core, or sleep; pids are serials."""

    def __init__(self) -> None:
        self.plan = Plan()
        self.begun: list[int] = []
        self.asleep: set[int] = set()
        self.starved: set[int] = set()
        self._ticks: Counter[int] = Counter()
        server: Any = SimpleNamespace(max_finalizing=2, processor_use=self._find_use)
        self.turns = FinalizeTurns(self.plan, server)

    def _find_use(self, pid: int) -> ProcessorUse:
        if pid not in self.asleep | self.starved:
            self._ticks[pid] += 1
        return ProcessorUse(self._ticks[pid], pid in self.starved)

    def request(self, *serials: int) -> None:
        for serial in serials:
            then(self.turns.request(serial, serial), partial(self._begin, serial))

    def _begin(self, serial: int, _: None) -> None:
        self.begun.append(serial)

    def advance(self, seconds: float) -> None:
        self.plan.advance_to(self.plan.now_s + seconds)


@pytest.fixture
def machine() -> Machine:
    machine = Machine()
    machine.request(1, 2, 3, 4)
    return machine


def test_no_more_begin_than_can_compute_at_once(machine: Machine) -> None:
    machine.advance(60.0)
    assert [1, 2] == machine.begun

    machine.turns.leave(1)
    machine.advance(60.0)

    assert [1, 2, 3] == machine.begun


def test_one_that_waits_for_something_keeps_nobody_from_beginning(machine: Machine) -> None:
    machine.asleep = {2}

    machine.advance(0.1)
    machine.advance(60.0)

    assert [1, 2, 3] == machine.begun


def test_one_that_waits_for_a_core_counts(machine: Machine) -> None:
    machine.starved = {1, 2}

    machine.advance(60.0)

    assert [1, 2] == machine.begun


def test_one_that_computes_again_counts_again(machine: Machine) -> None:
    machine.asleep = {1}
    machine.advance(0.1)
    machine.asleep = set()
    machine.advance(0.1)

    machine.turns.leave(2)
    machine.advance(60.0)

    assert [1, 2, 3] == machine.begun


def test_one_that_is_killed_while_it_waits_does_not_begin(machine: Machine) -> None:
    machine.turns.leave(3)
    machine.turns.leave(1)

    assert [1, 2, 4] == machine.begun


def test_nothing_is_looked_at_when_nobody_waits(machine: Machine) -> None:
    for serial in (1, 2, 3, 4):
        machine.turns.leave(serial)
    machine.advance(1.0)

    assert machine.plan.next_deadline_s() is None
