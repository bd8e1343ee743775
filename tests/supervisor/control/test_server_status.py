"""The status of the server, and staged files of loads."""

from __future__ import annotations

import itertools

import pytest

from tests.supervisor.world import Call, SupervisorHarness, make_blueprint
from zmqtriton.supervisor.control.server_status import describe_holders
from zmqtriton_floor.errors import InvalidArgument

# ------------------------------------------------------------------- held memory


def test_who_holds_memory_of_models_is_told() -> None:
    stub = {"role": "stub", "serial": 3, "pid": 30, "model": "m", "version": 1}
    guest = {"role": "guest", "serial": 4, "pid": 40}
    much, little = 5 << 20, 1000

    rows = describe_holders(
        [(4, 3, much), (3, 3, little), (4, 4, much), (9, 3, much)], [stub, guest]
    )

    assert [{"role": "guest", "pid": 40, "model": "m", "version": 1, "bytes": much}] == rows


# ------------------------------------------------------------------------ staged files


_numbers = itertools.count(1)


@pytest.fixture
def world() -> SupervisorHarness:
    return SupervisorHarness(
        make_blueprint("m"), control_mode="explicit", startup_models=("m",)
    ).start()


def staged(caller: int) -> str:
    return f"{caller}-{next(_numbers):016x}"


def load(world: SupervisorHarness, caller: int, name: str, model: str = "m") -> Call:
    arguments = {"model": model, "parameters": {"config": "{}"}, "files": {"staged": name}}
    return world.call_as(caller, "load", arguments)


@pytest.fixture
def caller(world: SupervisorHarness) -> int:
    return world.serial("grpc")


@pytest.mark.row("C73")
def test_a_load_without_files_goes_back_to_the_disk(caller: int, world: SupervisorHarness) -> None:
    name = staged(caller)
    load(world, caller, name)

    world.call("load", {"model": "m"})

    assert "/models/m" == world.generation("m").blueprint.directory
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
