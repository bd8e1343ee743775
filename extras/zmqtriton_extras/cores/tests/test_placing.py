"""Which cores instances get when they start, move or are replaced; no process is involved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.supervisor.world import SupervisorHarness, make_blueprint, make_ensemble
from zmqtriton.reading.blueprint import Blueprint
from zmqtriton_extras.cores import feature
from zmqtriton_extras.cores.tests.test_dealing import machine


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature, "read_machine", lambda: machine(1, 8))


def model(
    name: str, demand: int | None = None, instances: int = 1, fingerprint: str = "1"
) -> Blueprint:
    blueprint = make_blueprint(name, fingerprint, instances=instances)
    slots = [blueprint.first_slot._replace(name=f"{name}_0_{i}") for i in range(instances)]
    blueprint = replace(blueprint, other_slots=tuple(slots[1:]))
    return blueprint if demand is None else replace(blueprint, add_on_settings={"cores": demand})


def serve(*models: Blueprint, **policy: object) -> SupervisorHarness:
    policy.setdefault("startup_models", tuple(one.name for one in models))
    return SupervisorHarness(*models, control_mode="explicit", **policy).start().advance(1.0)


def cores(world: SupervisorHarness, name: str) -> list[tuple[int, ...]]:
    """Return the cores of the model's living instances, in the order of their slots."""
    generations = world.core.generations.values()
    instances = [i for g in generations if g.blueprint.name == name for i in g.instances]
    return [world.cores[i.serial] for i in instances if i.is_alive]


def rows(world: SupervisorHarness) -> list[dict[str, object]]:
    return list(world.call("status").result.get("cores", ()))


def test_instances_of_a_model_that_asks_get_disjoint_sets_and_threads_to_match() -> None:
    world = serve(model("m", 0, instances=4), model("other", instances=2))

    assert [(0, 1), (2, 3), (4, 5), (6, 7)] == cores(world, "m")
    assert [(), ()] == cores(world, "other")
    given = [{**world.variables[world.instance(name).serial]} for name in ("m", "other")]
    assert [dict.fromkeys(feature.VARIABLES, "2"), {}] == given
    assert ["0-1", "2-3", "4-5", "6-7"] == [row["cores"] for row in rows(world)]


def test_the_option_is_for_all_models_but_those_that_want_all_cores() -> None:
    world = serve(model("a"), model("b", 2), model("c", -1), make_ensemble("e", "a"), cores="auto")

    assert [[6], [2], [0]] == [[len(own) for own in cores(world, name)] for name in "abc"]
    assert not {*cores(world, "a")[0]} & {*cores(world, "b")[0]}


def test_models_that_are_still_to_be_read_have_a_share_from_the_start() -> None:
    world = serve(model("a"), model("b"), cores="auto")

    assert [[(0, 1, 2, 3)], [(4, 5, 6, 7)]] == [cores(world, name) for name in "ab"]
    assert not world.has_logged("has the cores")


def test_running_instances_give_up_cores_to_one_that_comes_later() -> None:
    world = serve(model("a", 0), model("b", 0), startup_models=("a",))
    world.call("load", {"model": "b", "parameters": {}})

    assert [[(0, 1, 2, 3)], [(4, 5, 6, 7)]] == [cores(world, name) for name in "ab"]
    assert world.has_logged("instance 'a_0_0' has the cores 0-3 now")
    [first, second] = rows(world)
    assert (8, 4) == (first["threads"], first["due_threads"])
    assert (4, 4) == (second["threads"], second["due_threads"])


def test_an_instance_that_is_not_known_yet_moves_when_it_is() -> None:
    world = serve(model("a", 0), model("b", 0), startup_models=())
    world.call("load", {"model": "a", "parameters": {}})
    instance = world.generation("a").instances[0]
    pid, instance.pid = instance.pid, 0
    world.call("load", {"model": "b", "parameters": {}})
    assert tuple(range(8)) == world.cores[instance.serial]

    instance.pid = pid
    world.advance(1.0)

    assert (0, 1, 2, 3) == world.cores[instance.serial]


def test_a_reload_gives_the_new_instances_the_sets_of_the_old_ones() -> None:
    world = serve(model("m", 0, instances=2), model("n", 0, instances=2))
    before = cores(world, "m")
    world.models["m"] = model("m", 0, instances=2, fingerprint="2")
    world.is_busy = True  # the old instances have requests
    world.call("load", {"model": "m", "parameters": {}})

    assert [*before, *before] == cores(world, "m")


def test_more_instances_than_cores_are_said_to_share() -> None:
    world = serve(model("m", 0, instances=9))

    assert [*((core,) for core in range(8)), (0,)] == cores(world, "m")
    assert world.has_logged("W 9 instances share 8 cores, as evenly as possible; have fewer")
    assert [True, *[False] * 7, True] == [row["is_shared"] for row in rows(world)]
