"""The work for one model, which must not grow with the number of the others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from tests.supervisor.world import SupervisorHarness, make_blueprint
from zmqtriton_floor import wire


class _Count:
    """The functions and generators of the supervisor that were entered."""

    number = 0


@contextmanager
def _calls() -> Iterator[_Count]:
    count = _Count()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and "zmqtriton" in frame.f_code.co_filename:
            count.number += "/tests/" not in frame.f_code.co_filename

    sys.setprofile(note)
    try:
        yield count
    finally:
        sys.setprofile(None)


def _serve(models: int) -> SupervisorHarness:
    blueprints = [make_blueprint(f"m{number}") for number in range(models)]
    return SupervisorHarness(*blueprints, control_mode="explicit", startup_models=("*",)).start()


def _reload(world: SupervisorHarness, model: str) -> None:
    for verb in ("unload", "load"):
        call = world.call(verb, {"model": model, "parameters": {}})
        assert call.answer is not None


def _die(world: SupervisorHarness, model: str) -> None:
    world.kill_process(world.serial(f"{model}_0_0"))
    world.advance(1.0)
    assert world.instance(model).restarts == 1


def _execute(world: SupervisorHarness, model: str) -> None:
    world.receive(world.serial("broker"), wire.FirstExecutionDone(world.serial(f"{model}_0_0")))


@pytest.mark.parametrize("work", [_reload, _die, _execute])
def test_the_work_for_one_model_does_not_grow(
    work: Callable[[SupervisorHarness, str], None],
) -> None:
    numbers = []
    for models in (10, 200):
        world = _serve(models)
        with _calls() as count:
            work(world, f"m{models - 1}")
        numbers.append(count.number)

    assert numbers[1] <= 1.2 * numbers[0]


def test_a_stub_is_found_by_its_serial_and_only_the_last_one() -> None:
    world = _serve(3)
    before, stubs = world.serial("m1_0_0"), world.core.events

    _die(world, "m1")

    instance = world.instance("m1")
    assert (world.generation("m1"), instance) == stubs.find_stub(instance.serial)
    assert (None, None) == stubs.find_stub(before)
    assert world.call("unload", {"model": "m1", "parameters": {}}).answer is not None
    assert (None, None) == stubs.find_stub(instance.serial)
