"""Other instance groups for a model that serves, without loading it anew."""

from __future__ import annotations

import dataclasses

import pytest

from tests.supervisor.world import HANGS, LOADS, SupervisorHarness, make_blueprint
from zmqtriton.supervisor.models.blueprint import Blueprint, FinalConfig
from zmqtriton.supervisor.models.instance import Instance, InstanceSlot
from zmqtriton_floor import wire

LOAD_M = {"model": "m", "parameters": {}}


def grouped(
    *places: InstanceSlot,
    fingerprint: str = "1",
    substance: str = "same",
    versions: tuple[int, ...] = (1,),
) -> Blueprint:
    """With these instances, and else what the substance says."""
    finished = FinalConfig(f'{{"name": "m", "places": {len(places)}}}', b"proto", places)
    model = make_blueprint("m", fingerprint, versions, finish=lambda reply: finished)
    of = {
        n: dataclasses.replace(v, fingerprint_without_instances=f"{substance} {n}")
        for n, v in model.versions.items()
    }
    return dataclasses.replace(model, versions=of, first_slot=places[0])


def cpus(count: int, group: str = "m_0") -> tuple[InstanceSlot, ...]:
    return tuple(InstanceSlot(f"{group}_{number}", "CPU", 0) for number in range(count))


def serving(*places: InstanceSlot) -> SupervisorHarness:
    world = SupervisorHarness(grouped(*places), control_mode="explicit", startup_models=("*",))
    return world.start()


def load(world: SupervisorHarness, model: Blueprint) -> object:
    world.models["m"] = model
    return world.call("load", LOAD_M).result


def serials(world: SupervisorHarness) -> list[int]:
    return sorted(instance.serial for instance in world.generation("m").instances)


@pytest.mark.row("F11")
def test_more_instances_join_those_that_there_are() -> None:
    world = serving(*cpus(1))
    number, old = world.generation("m").number, serials(world)

    assert load(world, grouped(*cpus(3), fingerprint="2")) is None

    assert number == world.generation("m").number
    assert old == serials(world)[:1]
    assert 3 == world.latest_version_info("m").ready_instances
    assert '{"name": "m", "places": 3}' == world.latest_version_info("m").config
    assert 3 == len(world.messages_to("broker", wire.AttachInstance))
    assert [number, number] == [
        serve.generation for serve in world.messages_to("broker", wire.AddGeneration)
    ]


@pytest.mark.row("F11")
def test_fewer_instances_leave_when_they_have_answered_what_they_have() -> None:
    world = serving(*cpus(3))
    first, *others = serials(world)
    world.is_busy = True

    assert load(world, grouped(*cpus(1), fingerprint="2")) is None
    assert 1 == world.latest_version_info("m").ready_instances
    assert others == [retire.serial for retire in world.messages_to("broker", wire.Retire)]
    assert {first, *others} <= world.alive, "they answer what they have"

    broker = world.serial("broker")
    for serial in others:
        world.receive(broker, wire.Drained(1, serial))
    assert [first] == serials(world)
    assert not set(others) & world.alive
    assert not world.has_logged("has died")


@pytest.mark.row("F11")
def test_another_name_starts_nobody_anew() -> None:
    world = serving(*cpus(2))
    before = serials(world)

    assert load(world, grouped(*cpus(2, "other"), fingerprint="2")) is None

    assert before == serials(world)
    names = [instance.name for instance in world.generation("m").instances]
    assert ["other_0", "other_1"] == names


def test_instances_move_to_where_they_are_wanted() -> None:
    world = serving(*cpus(1))
    (old,) = serials(world)

    assert load(world, grouped(InstanceSlot("m_0_0", "GPU", 1), fingerprint="2")) is None

    (new,) = serials(world)
    assert new != old
    assert old not in world.alive
    order = [type(m) for _, m in world.sent if isinstance(m, (wire.AttachInstance, wire.Retire))]
    assert [wire.AttachInstance, wire.AttachInstance, wire.Retire] == order, "the new one first"


@pytest.mark.row("F11")
def test_one_that_cannot_be_started_changes_nothing() -> None:
    world = serving(*cpus(1))
    before = serials(world)
    world.stub_behaviours["m"] = "no room"
    world.models["m"] = grouped(*cpus(3), fingerprint="2")

    code, text = world.call("load", LOAD_M).error

    assert (4, True) == (code, "no room" in text)
    assert before == serials(world)
    assert '{"name": "m", "places": 1}' == world.latest_version_info("m").config
    assert "READY" == world.latest_version_info("m").state
    world.stub_behaviours["m"] = LOADS
    assert world.call("load", LOAD_M).result is None
    assert 3 == len(serials(world))


def test_an_unload_ends_those_that_are_still_starting() -> None:
    world = serving(*cpus(1))
    world.stub_behaviours["m"] = HANGS
    world.models["m"] = grouped(*cpus(2), fingerprint="2")
    load = world.call("load", LOAD_M)
    assert load.answer is None

    assert world.call("unload", {"model": "m"}).result is None

    assert "unloaded" in load.error[1]
    world.advance(20.0)
    assert [] == world.living("stub")


@pytest.mark.row("F11")
def test_a_version_more_or_less_leaves_the_others_alone() -> None:
    world = serving(*cpus(1))
    before = serials(world)

    assert load(world, grouped(*cpus(1), fingerprint="2", versions=(1, 2))) is None
    assert before == serials(world)
    assert "READY" == world.latest_version_info("m", 2).state

    assert load(world, grouped(*cpus(1), fingerprint="3", versions=(1,))) is None
    assert before == serials(world)
    assert "UNAVAILABLE" == world.latest_version_info("m", 2).state


@pytest.mark.row("F11")
def test_anything_else_is_a_load_anew() -> None:
    world = serving(*cpus(1))
    before = serials(world)

    assert load(world, grouped(*cpus(2), fingerprint="2", substance="other")) is None

    assert not set(before) & set(serials(world))


def test_what_has_failed_for_good_is_replaced() -> None:
    world = serving(*cpus(2))
    broken: Instance = world.generation("m").instances[1]
    world.stub_behaviours["m"] = "no more"
    for _ in range(10):
        if broken.serial in world.alive:
            world.kill_process(broken.serial)
        world.advance(5.0)
    assert "FAILED" == broken.state.value
    world.stub_behaviours["m"] = LOADS

    assert load(world, grouped(*cpus(2), fingerprint="2")) is None

    assert 2 == world.latest_version_info("m").ready_instances


def test_the_next_broker_hears_who_leaves_and_how_many_stay() -> None:
    world = serving(*cpus(2))
    world.is_busy = True
    assert load(world, grouped(*cpus(1), fingerprint="2")) is None
    (leaving,) = [retire.serial for retire in world.messages_to("broker", wire.Retire)]
    world.sent.clear()

    world.kill_process(world.serial("broker"))
    world.advance(5.0)

    (serve,) = world.messages_to("broker", wire.AddGeneration)
    assert '{"name": "m", "places": 1}' == serve.config
    assert [leaving] == [retire.serial for retire in world.messages_to("broker", wire.Retire)]
    world.receive(world.serial("broker"), wire.Drained(1, leaving))
    assert leaving not in world.alive
    assert 1 == len(serials(world))
