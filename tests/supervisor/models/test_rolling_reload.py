"""New code for a model that serves: its instances are replaced one by one, or stay as they were."""

from __future__ import annotations

import dataclasses

import pytest

from tests.supervisor.models.test_instance import cpus, grouped
from tests.supervisor.world import HANGS, LOADS, Call, SupervisorHarness
from zmqtriton.reading.blueprint import Blueprint, FinalConfig
from zmqtriton.supervisor.models.model_report import troubles
from zmqtriton.supervisor.states import InstanceState
from zmqtriton_floor import wire

pytestmark = pytest.mark.row("L15")

LOAD_M = {"model": "m", "parameters": {}}
COUNT = 3


def coded(code: str, *, settings: str = "same", finished: str = "", passive: int = 0) -> Blueprint:
    """Return a model with this code; `finished` is what it completes its configuration to."""
    slots = (slot._replace(is_passive=i < passive) for i, slot in enumerate(cpus(COUNT)))
    model = grouped(*slots, fingerprint=code, substance=code)
    of = {
        n: dataclasses.replace(v, fingerprint_without_code=settings)
        for n, v in model.versions.items()
    }
    model = dataclasses.replace(model, versions=of)
    if finished:
        final = FinalConfig(finished, b"proto", cpus(COUNT))
        model = dataclasses.replace(model, finalize_config=lambda reply: final)
    return model


def serving(passive: int = 0) -> SupervisorHarness:
    policy = {"control_mode": "explicit", "startup_models": ("*",)}
    return SupervisorHarness(coded("1", passive=passive), **policy).start()


def load(world: SupervisorHarness, model: Blueprint) -> wire.CallResult | None:
    world.models["m"] = model
    return world.call("load", LOAD_M).answer


def serials(world: SupervisorHarness) -> set[int]:
    return {instance.serial for instance in world.generation("m").instances}


def ready_serials(world: SupervisorHarness) -> set[int]:
    instances = world.generation("m").instances
    return {one.serial for one in instances if one.state is InstanceState.READY}


@pytest.fixture
def world() -> SupervisorHarness:
    return serving()


def test_of_passive_instances_the_broker_is_told_nothing() -> None:
    world = serving(passive=2)
    before = serials(world)
    world.sent.clear()

    load(world, coded("2", passive=2))

    assert not before & (serials(world) | world.alive)
    kinds = [type(m) for _, m in world.sent if isinstance(m, (wire.AttachInstance, wire.Retire))]
    assert [wire.AttachInstance, wire.Retire] == kinds


def test_a_roll_is_over_when_a_new_broker_gives_nothing_to_the_old_instances(
    world: SupervisorHarness,
) -> None:
    before = serials(world)
    world.advance(60.0)  # the next broker is started at once
    world.kill_process(world.serial("broker"))
    world.sent.clear()
    world.models["m"] = coded("2")

    call = world.call("load", LOAD_M)
    ready_first = False
    while call.answer is None:
        world.advance(0.1)
        is_withheld = not world.messages_to("broker", wire.Retire)
        ready_first |= is_withheld and COUNT == len(ready_serials(world) - before)

    assert ready_first, "the new ones were ready while requests might still be on their way"
    assert before == {message.serial for message in world.messages_to("broker", wire.Retire)}
    assert 0 == call.answer.code


def test_what_fails_beside_a_version_that_serves_is_a_load(world: SupervisorHarness) -> None:
    world.stub_behaviours["m"] = "no weights"

    load(world, coded("2"))

    [trouble] = troubles(world.core.models["m"])
    assert ("load", "OTHER") == (trouble["what"], trouble["cause"])


def test_a_new_one_that_dies_later_stops_it_too(world: SupervisorHarness) -> None:
    before = serials(world)
    call = _rolled_up_to(world, 2)
    (first, second) = sorted(serials(world) - before)

    world.kill_process(first)

    assert call.answer is not None
    assert "(1 of 3 instances have the new code)" in call.answer.text
    assert second not in serials(world)
    assert 2 == len(before & serials(world))
    world.stub_behaviours["m"] = LOADS
    world.advance(10)
    assert COUNT == world.generation("m").readiness.ready_count


def test_an_unload_ends_a_roll_in_which_an_instance_has_died(world: SupervisorHarness) -> None:
    call = _rolled_up_to(world, 2)
    world.kill_process(min(ready_serials(world)))  # an old one; the next hangs in its place

    world.call("unload", {"model": "m"})

    assert call.answer is not None
    assert "unloaded" in call.answer.text
    assert not world.living("stub")


def test_an_unload_ends_a_roll_without_a_ready_instance(world: SupervisorHarness) -> None:
    world.stub_behaviours["m"], world.is_busy = HANGS, True
    for serial in serials(world):
        world.kill_process(serial, had_begun=False)
    load(world, coded("2"))
    places = [*world.generation("m").instances]
    starting = places[-1].serial

    world.call("unload", {"model": "m"})
    world.finish_load(starting)  # it answers what waits

    assert places == [*world.generation("m").instances]
    assert world.messages_to("broker", wire.AttachInstance)[-1].serial == starting


def _rolled_up_to(world: SupervisorHarness, number: int) -> Call:
    """Return the call of a load whose so many-th new instance hangs."""
    started = []
    react = world.react_as_stub

    def hang_later(serial: int, message: object) -> None:
        if isinstance(message, wire.LoadModel):
            started.append(serial)
            if len(started) == number:
                world.stub_behaviours["m"] = HANGS
        react(serial, message)

    world.react_as_stub = hang_later  # type: ignore[method-assign]
    world.models["m"] = coded("2")
    return world.call("load", LOAD_M)


def test_code_that_completes_another_configuration_is_a_load_anew(world: SupervisorHarness) -> None:
    number, before = world.generation("m").number, serials(world)

    answer = load(world, coded("2", finished='{"name": "m", "other": 1}'))

    assert answer is not None
    assert 0 == answer.code
    assert number < world.generation("m").number
    assert not before & serials(world)
    assert '{"name": "m", "other": 1}' == world.latest_version_info("m").config
    assert COUNT == world.latest_version_info("m").ready_instances


@pytest.mark.addons
def test_a_scale_that_has_waited_for_it_comes_next(world: SupervisorHarness) -> None:
    world.stub_behaviours["m"] = HANGS
    loading = world.call("load", LOAD_M) if load(world, coded("2")) is None else None
    scaled = world.call("scale", {"model": "m", "count": 2})
    assert loading is not None
    assert scaled.answer is None

    world.stub_behaviours["m"] = "no weights"
    (starting,) = [i for i in world.generation("m").instances if i.state is InstanceState.LOADING]
    world.kill_process(starting.serial)

    assert scaled.answer is not None, "the failed load has let it through"
