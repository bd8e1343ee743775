"""Loads whose instances could never execute are refused, and what is gone needs nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.supervisor.settings import settings as server_settings
from tests.supervisor.world import LOADS, SupervisorHarness, make_blueprint
from zmqtriton.config.resources import ResourceNeed
from zmqtriton.supervisor.models.blueprint import Blueprint
from zmqtriton.supervisor.models.instance import InstanceSlot
from zmqtriton_floor import wire
from zmqtriton_floor.settings.broker import RateLimitResource

LIMITED = {"rate_limit": "execution_count", "rate_limit_resource": (RateLimitResource("R", 2, -1),)}


def _needing(name: str, count: int, device: int = 0, *, is_final: bool = True) -> Blueprint:
    demand = ResourceNeed({("R", device): count}, 1).to_json()
    plain = make_blueprint(name)
    finished = plain.finalize_config("")
    finished = replace(finished, slots=tuple(p._replace(resources=demand) for p in finished.slots))
    return replace(
        plain, final_config=finished if is_final else None, finalize_config=lambda reply: finished
    )


def _world(*models: Blueprint, settings: dict[str, Any]) -> SupervisorHarness:
    return SupervisorHarness(
        *models, control_mode="explicit", settings=server_settings(**settings)
    ).start()


def _load(world: SupervisorHarness, name: str) -> str:
    """Why not; "": all is well."""
    call = world.call("load", {"model": name, "parameters": {}})
    assert call.answer is not None
    return str(call.answer.text)


@pytest.mark.row("E38")
@pytest.mark.parametrize("is_final", [True, False])
def test_a_model_that_could_never_execute_is_not_loaded(is_final: bool) -> None:
    world = _world(_needing("m", 2), _needing("n", 3, is_final=is_final), settings=LIMITED)

    assert "" == _load(world, "m")
    text = (
        "load failed for model 'n': version 1 is at UNAVAILABLE state: Invalid argument: Resource "
        'count for "R" is limited to 2 which will prevent scheduling of one or more model '
        "instances, the minimum required count is 3;\n"
    )
    assert text == _load(world, "n")
    assert not [name for name in world.stub_names.values() if name.startswith("n") and is_final]


@pytest.mark.row("E38")
def test_what_is_unloaded_does_not_clash_any_more() -> None:
    settings = {"rate_limit": "execution_count"}
    world = _world(_needing("m", 1), _needing("n", 1, device=-1), settings=settings)
    assert "" == _load(world, "m")

    assert 'Resource "R" is present as both global and device-specific' in _load(world, "n")
    world.call("unload", {"model": "m", "unload_dependents": False})

    assert "" == _load(world, "n")


def test_the_broker_is_told_only_where_the_limiter_is_on() -> None:
    for settings, is_told in ((LIMITED, True), ({"rate_limit": "off"}, False)):
        world = _world(_needing("m", 1), settings=settings)

        assert "" == _load(world, "m")

        [attach] = world.messages_to("broker", wire.AttachInstance)
        assert is_told == (attach.resources != "")


def _grouped(fingerprint: str, *keys: tuple[str, int]) -> Blueprint:
    """It differs in its instances only, each of which needs one of these."""
    plain = make_blueprint("m", fingerprint)
    demands = [ResourceNeed({key: 1}, 1).to_json() for key in keys]
    places = tuple(InstanceSlot(f"m_0_{n}", "CPU", 0, demand) for n, demand in enumerate(demands))
    finished = replace(plain.finalize_config(""), slots=places)
    versions = {
        n: replace(v, fingerprint_without_instances="same") for n, v in plain.versions.items()
    }
    return replace(
        plain,
        versions=versions,
        final_config=finished,
        finalize_config=lambda _: finished,
        first_slot=places[0],
    )


@pytest.mark.row("E38")
@pytest.mark.parametrize("outcome", ["no room", LOADS])
def test_after_other_instances_what_is_gone_needs_nothing(outcome: str) -> None:
    settings = {"rate_limit": "execution_count"}
    world = _world(_grouped("1", ("OLD", 0)), _needing("n", 1, device=0), settings=settings)
    assert "" == _load(world, "m")
    world.stub_behaviours["m"] = outcome
    world.models["m"] = _grouped("2", ("R", -1))
    assert (outcome == LOADS) is (_load(world, "m") == "")

    text = _load(world, "n")

    assert ('Resource "R" is present as both' in text) is (outcome == LOADS)
    assert (text == "") is (outcome != LOADS)
    names = [instance.slot.resources for instance in world.generation("m").instances]
    assert [ResourceNeed({("R", -1) if outcome == LOADS else ("OLD", 0): 1}, 1).to_json()] == names
