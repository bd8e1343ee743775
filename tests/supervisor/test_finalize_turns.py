"""The order in which instances finalize."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from zmqtriton.supervisor.finalize_turns import FinalizeTurns, ProcessorUse
from zmqtriton.supervisor.plan import Plan


class Machine:
    """Two cores, and processes that compute, wait for a core, or sleep; pids are serials."""

    def __init__(self) -> None:
        self.plan = Plan()
        self.begun: list[int] = []
        self.asleep: set[int] = set()
        self.starved: set[int] = set()
        self._ticks: Counter[int] = Counter()
        self.turns = FinalizeTurns(self.plan, 2, self._find_use)

    def _find_use(self, pid: int) -> ProcessorUse:
        if pid not in self.asleep | self.starved:
            self._ticks[pid] += 1
        return ProcessorUse(self._ticks[pid], pid in self.starved)

    def request(self, *serials: int) -> None:
        for serial in serials:
            self.turns.request(serial, serial, partial(self.begun.append, serial))

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
