"""Idle stubs are asked whether they are there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from zmqtriton.broker.idle_checks import ANSWER_WITHIN_NS, EVERY_NS, IdleChecks
from zmqtriton.broker.scheduling.instances import InstanceState


class World:
    def __init__(self, *serials: int) -> None:
        self.instances: Any = {n: SimpleNamespace(state=InstanceState.IDLE) for n in serials}
        self.checked: list[int] = []
        self.lost: list[int] = []
        self.now_ns = 10**12
        self.checks = IdleChecks(self.instances, self.checked.append, self.lost.append)

    def advance(self, nanoseconds: int) -> None:
        """Lets the time pass, with each check when it is due."""
        end_ns = self.now_ns + nanoseconds
        while self.checks.due_ns <= end_ns:
            self.now_ns = max(self.now_ns, self.checks.due_ns)
            self.checks.tick(self.now_ns)
        self.now_ns = end_ns


def test_whoever_answers_is_asked_again_and_again() -> None:
    world = World(1, 2)

    for _ in range(100):
        world.advance(EVERY_NS)
        for serial in world.checked[-2:]:
            world.checks.answered(serial)

    assert [1, 2] * 100 <= world.checked
    assert [] == world.lost


def test_who_does_not_answer_is_lost_once() -> None:
    world = World(1, 2)
    world.advance(0)
    world.checks.answered(2)

    world.advance(ANSWER_WITHIN_NS - 1)
    assert [] == world.lost

    world.advance(1)
    assert [1] == world.lost


def test_who_executes_may_take_its_time() -> None:
    world = World(1)
    world.advance(0)
    world.instances[1].state = InstanceState.BUSY

    world.advance(10 * ANSWER_WITHIN_NS)
    world.instances[1].state = InstanceState.IDLE
    world.advance(EVERY_NS)

    assert ([1, 1], []) == (world.checked, world.lost)


def test_who_has_gone_is_forgotten() -> None:
    world = World(1)
    world.advance(0)
    del world.instances[1]

    world.advance(2 * ANSWER_WITHIN_NS)
    world.instances[1] = SimpleNamespace(state=InstanceState.IDLE)
    world.advance(EVERY_NS)

    assert ([1, 1], []) == (world.checked, world.lost)
