from __future__ import annotations

import itertools

import pytest

from tests.supervisor.world import HANGS, Call, SupervisorHarness, make_blueprint
from zmqtriton_floor.errors import InvalidArgument

_numbers = itertools.count(1)


@pytest.fixture
def world() -> SupervisorHarness:
    return SupervisorHarness(
        make_blueprint("m"), control_mode="explicit", startup_models=("m",)
    ).start()


def staged(caller: int) -> str:
    return f"{caller}-{next(_numbers):016x}"


def load(world: SupervisorHarness, caller: int, name: str, model: str = "m") -> Call:
    parameters = {"config": "{}"}
    arguments = {"model": model, "parameters": parameters, "files": {"staged": name}}
    return world.call_as(caller, "load", arguments)


def test_a_load_s_files_are_its_model_s_directory_while_it_serves(world: SupervisorHarness) -> None:
    caller = world.serial("grpc")
    first, second = staged(caller), staged(caller)

    load(world, caller, first)
    assert f"/run/x/files/{first}" == world.generation("m").blueprint.directory
    assert [] == world.removed

    load(world, caller, second)
    assert f"/run/x/files/{second}" == world.generation("m").blueprint.directory
    assert [f"/run/x/files/{first}"] == world.removed


@pytest.mark.row("C73")
def test_a_load_without_files_goes_back_to_the_disk(world: SupervisorHarness) -> None:
    caller = world.serial("grpc")
    name = staged(caller)
    load(world, caller, name)

    world.call("load", {"model": "m"})

    assert "/models/m" == world.generation("m").blueprint.directory
    assert [f"/run/x/files/{name}"] == world.removed


def test_an_unload_removes_them_when_the_last_process_is_gone(world: SupervisorHarness) -> None:
    caller = world.serial("grpc")
    name = staged(caller)
    load(world, caller, name)
    world.stubborn.add("m_0_0")

    world.call("unload", {"model": "m"})
    assert [] == world.removed

    world.kill_process(world.serial("m_0_0"))
    assert [f"/run/x/files/{name}"] == world.removed


def test_they_stay_while_a_stub_is_started_again(world: SupervisorHarness) -> None:
    caller = world.serial("grpc")
    load(world, caller, staged(caller))

    world.kill_process(world.serial("m_0_0")).tick()

    assert "READY" == world.index()[0]["state"]
    assert [] == world.removed


def test_a_load_that_fails_leaves_nothing_and_what_served_serves_on(
    world: SupervisorHarness,
) -> None:
    caller = world.serial("grpc")
    good, bad = staged(caller), staged(caller)
    load(world, caller, good)
    world.stub_behaviours["m"] = "it raises"

    answer = load(world, caller, bad)

    assert "it raises" in answer.error[1]
    assert f"/run/x/files/{good}" == world.generation("m").blueprint.directory
    assert [f"/run/x/files/{bad}"] == world.removed


def test_a_load_that_waits_keeps_its_files(world: SupervisorHarness) -> None:
    caller = world.serial("grpc")
    hanging, waiting = staged(caller), staged(caller)
    world.stub_behaviours["m"] = HANGS
    load(world, caller, hanging)

    late = load(world, caller, waiting)
    assert (None, []) == (late.answer, world.removed)

    world.call("unload", {"model": "m"})
    assert {f"/run/x/files/{hanging}", f"/run/x/files/{waiting}"} == set(world.removed)


@pytest.mark.parametrize("model", ["", "../m"])
def test_a_load_that_is_refused_leaves_nothing(world: SupervisorHarness, model: str) -> None:
    caller = world.serial("grpc")
    name = staged(caller)

    answer = load(world, caller, name, model)

    assert InvalidArgument.number == answer.error[0]
    assert [f"/run/x/files/{name}"] == world.removed


def test_nobody_takes_what_another_has_staged(world: SupervisorHarness) -> None:
    caller, other = world.serial("grpc"), world.serial("m_0_0")
    name = staged(caller)
    load(world, caller, name)

    answers = [
        load(world, who, what)
        for who, what in [
            (caller, name),
            (other, name),
            (other, staged(caller)),
            (other, f"{other}-{'0' * 16}/../{name}"),
            (other, f"../{name}"),
        ]
    ]

    assert {InvalidArgument.number} == {answer.error[0] for answer in answers}
    assert [] == world.removed
