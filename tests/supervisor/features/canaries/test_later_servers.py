"""Decisions about canaries on servers that begin later."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.supervisor.features.canaries.told import (
    count,
    parameters,
    serving,
    start_canary,
    status,
)
from tests.supervisor.model_directory import PLAIN, ModelDirectory, load
from zmqtriton_floor.errors import NotFound

OTHER = f'{PLAIN} parameters {{ key: "x" value {{ string_value: "y" }} }}'
FIRST = f"version_policy {{ specific {{ versions: 1 }} }} {PLAIN}"


@pytest.fixture
def repository(tmp_path: Path) -> ModelDirectory:
    return ModelDirectory(tmp_path)


def abort(repository: ModelDirectory) -> None:
    """Try version 2 on a server, and abort it."""
    world = repository.serve()
    repository.add(2)
    start_canary(world)
    world.call("canary.abort", {"model": "m"})
    assert [1] == serving(world)


def test_an_aborted_version_is_left_out_until_its_files_change(repository: ModelDirectory) -> None:
    abort(repository)

    world = repository.serve()
    assert [1] == serving(world)
    assert world.has_logged("W version 2 of model 'm' is left out until its files change")
    assert world.has_logged("(an operator has aborted it); 'zmqtriton-ctl canary start m 2' tries")

    repository.add(2, "repaired")
    load(world)
    assert [2] == serving(world)
    assert [2] == serving(repository.serve())


def test_a_version_that_the_counts_have_aborted_is_left_out_too(tmp_path: Path) -> None:
    repository = ModelDirectory(tmp_path, parameters(version="2", weight="20", min_requests="10"))
    repository.add(2)
    world = repository.serve()
    count(world, (1, 100, 0, 1.0), (2, 0, 0, 1.0))
    world.advance(2.0)
    count(world, (1, 200, 0, 1.0), (2, 0, 10, 1.0))
    world.advance(2.0)
    assert "ABORTED" == status(world)["phase"]

    world = repository.serve()

    assert [1] == serving(world)
    assert NotFound.number == world.call("canary.status", {"model": "m"}).error[0]


def test_copies_of_the_files_elsewhere_are_the_same_version(
    repository: ModelDirectory, tmp_path: Path
) -> None:
    abort(repository)
    copied = shutil.copytree(tmp_path, tmp_path / ".elsewhere", copy_function=shutil.copyfile)
    shutil.rmtree(copied / ".state")
    os.rename(tmp_path / ".state", copied / ".state")
    other = ModelDirectory(copied)
    os.utime(copied / "m/2/model.py", (1, 1))

    assert [1] == serving(other.serve())


def test_an_aborted_version_that_is_tried_again_and_promoted_serves(
    repository: ModelDirectory,
) -> None:
    abort(repository)
    world = repository.serve()
    start_canary(world)

    world.call("canary.promote", {"model": "m"})

    assert [2] == serving(world) == serving(repository.serve())


def test_while_it_is_tried_again_it_is_not_left_out_by_loads(repository: ModelDirectory) -> None:
    abort(repository)
    world = repository.serve()
    start_canary(world)

    repository.configure(OTHER)
    load(world)

    assert [1, 2] == serving(world)


def test_a_promotion_survives_loads_and_servers_against_the_version_policy(tmp_path: Path) -> None:
    repository = ModelDirectory(tmp_path, FIRST)
    world = repository.serve()
    repository.add(2)
    start_canary(world)
    world.call("canary.promote", {"model": "m"})
    before = world.generation("m", 2)

    repository.configure(f'{FIRST} parameters {{ key: "x" value {{ string_value: "y" }} }}')
    load(world)

    assert 2 in serving(world)
    assert before is not world.generation("m", 2)
    assert 2 in serving(repository.serve())


def test_a_new_version_policy_is_newer_than_the_promotion(tmp_path: Path) -> None:
    repository = ModelDirectory(tmp_path)
    world = repository.serve()
    repository.add(2)
    start_canary(world)
    world.call("canary.promote", {"model": "m"})

    repository.configure(FIRST)
    load(world)

    assert [1] == serving(world) == serving(repository.serve())


def test_a_promotion_of_the_only_version_that_the_policy_leaves_serves(tmp_path: Path) -> None:
    policy = f"version_policy {{ specific {{ versions: 2 }} }} {PLAIN}"
    repository = ModelDirectory(tmp_path, policy)
    repository.add(2)
    world = repository.serve()
    start_canary(world, version=1)
    world.call("canary.promote", {"model": "m"})

    repository.add(1)
    load(world)

    assert [1] == serving(world) == serving(repository.serve())


def test_what_never_began_or_was_unloaded_is_no_decision(repository: ModelDirectory) -> None:
    world = repository.serve()
    repository.add(2)
    world.stub_behaviours["m_0"] = "no weights"
    assert world.call("canary.start", {"model": "m", "version": 2, "weight": 10}).error
    assert [2] == serving(repository.serve())

    world.stub_behaviours.clear()
    start_canary(world)
    world.call("unload", {"model": "m"})
    assert [2] == serving(repository.serve())


def test_a_decision_that_cannot_be_read_is_reported_and_nothing_else(
    repository: ModelDirectory, tmp_path: Path
) -> None:
    abort(repository)
    (path,) = (tmp_path / ".state/canaries/m").iterdir()
    path.write_text("{}")

    world = repository.serve()

    assert [2] == serving(world)
    assert world.has_logged(f"W the decision about a canary in '{path}' cannot be read: it has")
