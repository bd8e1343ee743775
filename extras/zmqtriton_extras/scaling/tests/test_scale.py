"""Another number of instances for a model that serves, whatever its files say meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.supervisor.model_directory import ModelDirectory, load
from tests.supervisor.world import HANGS, SupervisorHarness
from zmqtriton.reading.blueprint import Scale
from zmqtriton_floor.errors import InvalidArgument, NotFound, Unavailable

pytestmark = pytest.mark.row("L06")

ONE_GROUP = "instance_group { count: 2 }"
SEQUENCES = f"sequence_batching {{ }} {ONE_GROUP}"
TWO_GROUPS = 'instance_group { name: "a" } instance_group { name: "b" count: 2 }'


@pytest.fixture
def repository(tmp_path: Path) -> ModelDirectory:
    return ModelDirectory(tmp_path, ONE_GROUP)


def scale(world: SupervisorHarness, count: int, **more: object) -> object:
    return world.call("scale", {"model": "m", "count": count, **more}).result


def names(world: SupervisorHarness) -> list[str]:
    return sorted(one.name for one in world.generation("m").instances)


def test_instances_join_and_leave_and_the_rest_stays(repository: ModelDirectory) -> None:
    world = repository.serve()
    number, serials = world.generation("m").number, {1: world.generation("m").instances[0].serial}

    assert {"model": "m", "versions": {"1": {"instances": 4, "ready": 4}}} == scale(world, 4)
    scale(world, 1)
    assert ["m_0_0"] == names(world)
    assert (number, serials[1]) == (world.generation("m").number, world.instance("m").serial)
    assert '"count": 1' in world.latest_version_info("m").config.replace('":1', '": 1')


def test_it_stays_over_reloads(repository: ModelDirectory) -> None:
    world = repository.serve()
    scale(world, 3)

    before = {one.serial for one in world.generation("m").instances}
    repository.add(1, "second")
    load(world)

    assert ["m_0_0", "m_0_1", "m_0_2"] == names(world)
    assert not before & {one.serial for one in world.generation("m").instances}


def test_who_configures_other_groups_afterwards_has_the_last_word(
    repository: ModelDirectory,
) -> None:
    world = repository.serve()
    scale(world, 3)

    repository.configure("instance_group { count: 5 }")
    load(world)

    assert 5 == len(names(world))


def test_a_group_is_named_where_there_are_several(repository: ModelDirectory) -> None:
    repository.configure(TWO_GROUPS)
    world = repository.serve()

    assert (
        InvalidArgument.number,
        "model 'm' has several instance groups, name one of a, b",
    ) == world.call("scale", {"model": "m", "count": 2}).error
    assert (
        InvalidArgument.number,
        "model 'm' has no instance group 'c', it has a, b",
    ) == world.call("scale", {"model": "m", "count": 2, "group": "c"}).error
    scale(world, 1, group="b")
    assert ["a_0", "b_0"] == names(world)


@pytest.mark.parametrize(
    ("arguments", "number", "text"),
    [
        ({"count": 0}, InvalidArgument.number, "instances is 0, it must be from 1 to 1024"),
        ({"count": 1025}, InvalidArgument.number, "must be from 1 to 1024"),
        ({"count": "2"}, InvalidArgument.number, "'count' must be an integer"),
        ({"count": True}, InvalidArgument.number, "'count' must be an integer"),
        ({"count": 2, "gruop": "c"}, InvalidArgument.number, "a scale has no setting 'gruop'"),
        ({"count": 2, "group": 1}, InvalidArgument.number, "'group' a string"),
        (
            {"count": 2, "model": "x"},
            NotFound.number,
            "there is no model 'x'; `zmqtriton-ctl models` lists them",
        ),
        ({"count": 2, "model": ""}, InvalidArgument.number, "Model name cannot be empty"),
    ],
)
def test_what_makes_no_sense_is_refused(
    repository: ModelDirectory, arguments: dict[str, object], number: int, text: str
) -> None:
    world = repository.serve()

    error = world.call("scale", {"model": "m", **arguments}).error

    assert number == error[0]
    assert text in error[1]
    assert 2 == len(names(world))


def test_a_model_that_is_not_loaded_cannot_be_scaled(repository: ModelDirectory) -> None:
    world = repository.serve()
    world.call("unload", {"model": "m"})

    error = world.call("scale", {"model": "m", "count": 2}).error

    assert (
        Unavailable.number,
        "model 'm' is not loaded, so it cannot be scaled; load it first",
    ) == error


def test_it_waits_for_the_load_before_it(repository: ModelDirectory) -> None:
    world = repository.serve()
    world.stub_behaviours["m"] = HANGS
    repository.add(1, "second")
    world.call("load", {"model": "m", "parameters": {}})

    call = world.call("scale", {"model": "m", "count": 3})

    assert call.answer is None
    world.call("unload", {"model": "m"})
    assert Unavailable.number == call.error[0]


def test_scale_says_how_many(repository: ModelDirectory) -> None:
    assert "1 instance" == Scale(1).text
    assert "2 instances in group g" == Scale(2, "g").text
