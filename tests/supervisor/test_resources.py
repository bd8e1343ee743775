"""Loads whose instances could never execute are refused, and what is gone needs nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.supervisor.world import World, blueprint
from zmqtriton.config.resources import Demand
from zmqtriton.supervisor.blueprint import Blueprint
from zmqtriton_floor import wire

LIMITED = {"rate_limit": "execution_count", "rate_limit_resource": [["R", 2, -1]]}


def _needing(name: str, count: int, device: int = 0, *, is_final: bool = True) -> Blueprint:
    demand = Demand({("R", device): count}, 1).to_json()
    plain = blueprint(name)
    finished = plain.finish("")
    finished = replace(finished, places=tuple(p._replace(demand=demand) for p in finished.places))
    return replace(plain, finished=finished if is_final else None, finish=lambda reply: finished)


def _world(*models: Blueprint, settings: dict[str, Any]) -> World:
    return World(*models, control_mode="explicit", settings=json.dumps(settings)).start()


def _load(world: World, name: str) -> str:
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

        [attach] = world.to("broker", wire.Attach)
        assert is_told == (attach.demand != "")
