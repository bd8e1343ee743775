"""Canaries that a model's parameters ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.supervisor.features.canaries.told import parameters, serving, status, told_split
from tests.supervisor.model_directory import PLAIN, ModelDirectory, load
from tests.supervisor.take_overs import TakeOver
from zmqtriton_floor import wire


@pytest.mark.row("L16")
def test_a_version_that_is_added_is_tried_by_a_poll_as_the_parameters_say(tmp_path: Path) -> None:
    repository = ModelDirectory(tmp_path, parameters(version="2", weight="20%"))
    world = repository.serve()
    before = world.generation("m")
    assert [1] == serving(world)

    repository.add(2)
    world.core.models["m"].poll(0.0)
    world.run_until_idle()

    assert [1, 2] == serving(world)
    assert before is world.generation("m")
    assert wire.TrafficSplit("m", 1, 2, 2000) == told_split(world)
    splits = [m for m in world.messages_to("grpc", wire.TrafficSplit)]
    assert 0 == splits[0].weight


def test_a_server_begins_with_the_canary(tmp_path: Path) -> None:
    repository = ModelDirectory(tmp_path, parameters(version="2", header="X-Try: yes"))
    repository.add(2)

    world = repository.serve()

    assert [1, 2] == serving(world)
    assert wire.TrafficSplit("m", 1, 2, 0, "x-try", "yes") == told_split(world)


def test_changed_parameters_change_it_and_load_nothing_anew(tmp_path: Path) -> None:
    repository = ModelDirectory(tmp_path, parameters(version="2", weight="20"))
    repository.add(2)
    world = repository.serve()
    before = world.generation("m", 1), world.generation("m", 2)

    repository.configure(parameters(version="2", weight="40"))
    load(world)

    assert 4000 == told_split(world).weight
    assert before == (world.generation("m", 1), world.generation("m", 2))


def test_what_an_operator_changed_is_that_of_a_server_that_takes_over(tmp_path: Path) -> None:
    repository = ModelDirectory(tmp_path, parameters(version="2", weight="20"))
    repository.add(2)
    world = repository.serve()
    world.call("canary.change", {"model": "m", "weight": 70})

    pair = TakeOver(world, repository.server())
    pair.start()
    pair.exchange()

    assert told_split(world) == told_split(pair.new)
    assert 7000 == told_split(pair.new).weight


def test_without_its_parameters_the_version_policy_decides(tmp_path: Path) -> None:
    repository = ModelDirectory(tmp_path, parameters(version="2", weight="20"))
    repository.add(2)
    world = repository.serve()

    repository.configure(PLAIN)
    load(world)

    assert ("PROMOTED", [2]) == (status(world)["phase"], serving(world))


def test_what_was_aborted_is_not_tried_again_until_it_changes(tmp_path: Path) -> None:
    repository = ModelDirectory(tmp_path, parameters(version="2", weight="20"))
    repository.add(2)
    world = repository.serve()
    world.call("canary.abort", {"model": "m"})

    repository.add(1, "changed")
    load(world)
    assert [1] == serving(world)

    repository.add(2, "repaired")
    load(world)
    assert [1, 2] == serving(world)
    assert "RUNNING" == status(world)["phase"]


def test_what_was_promoted_stays_though_the_parameters_still_name_it(tmp_path: Path) -> None:
    repository = ModelDirectory(tmp_path, parameters(version="2", weight="20"))
    repository.add(2)
    world = repository.serve()
    world.call("canary.promote", {"model": "m"})

    world.core.models["m"].poll(0.0)
    world.run_until_idle()

    assert ("PROMOTED", [2]) == (status(world)["phase"], serving(world))


def test_parameters_that_cannot_be_are_a_problem_of_the_load(tmp_path: Path) -> None:
    repository = ModelDirectory(tmp_path)
    world = repository.serve()
    repository.configure(parameters(version="2", weight="much"))

    _, text = world.call("load", {"model": "m", "parameters": {}}).error

    assert "canary_weight: 'weight' of a canary is 'much', not a percentage from 0 to 100" in text
    assert [1] == serving(world)
