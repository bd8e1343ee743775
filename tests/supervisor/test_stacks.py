"""Whom `zmqtriton-ctl stacks` asks, and with which signal."""

from __future__ import annotations

import signal

from tests.supervisor.world import World, blueprint
from zmqtriton.supervisor.actions import Signal
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.stacks import ask_stacks


def test_the_stubs_of_one_model_are_asked() -> None:
    world = World(blueprint("m"), blueprint("n"), control_mode="none").start()
    stub = world.instance("m")
    plan = Plan()

    asked = ask_stacks(plan, world.core.generations.values(), "m")

    assert [{"instance": "m_0_0", "pid": stub.pid, "state": "READY"}] == asked
    # Who has not prepared for it does not die of this one.
    assert [Signal(stub.serial, signal.SIGURG)] == plan.take()
    assert asked == world.call("stacks", {"model": "m"}).result
    assert [] == world.call("stacks", {"model": "nobody"}).result


def test_who_is_dead_is_not_asked() -> None:
    world = World(blueprint("m"), control_mode="none").start()
    world.die(world.serial("m_0_0"))

    assert [] == ask_stacks(Plan(), world.core.generations.values(), "m")
