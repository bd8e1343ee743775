"""Broken models in one repository: explain names each cause, and its advice helps."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.standard.ctl.system.commands import OPTION, ctl
from tests.standard.tools.advice.model_faults import FAULTS
from tests.standard.tools.advice.world import World, first, is_showing
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.system,
    pytest.mark.long(
        "standard/tools/system/test_server_trouble.py::test_models_that_raise_die_or_fail_are_explained",
        "diagnosis/explaining/test_findings.py::test_what_stands_still_is_told_with_its_place",
    ),
    pytest.mark.server(
        models=("add_sub",),
        options=[
            "--model-control-mode=explicit",
            "--load-model=add_sub",
            "--model-load-thread-count=8",
            "--exit-on-error=false",
            "--strict-readiness=false",
            "--exit-timeout-secs=1",
            "--build-environments",
            "--environment-directory=@DIRECTORY@/environments",
            "--routes",
            "--model-repository=@DIRECTORY@/second",
            OPTION,
        ],
        frontends=(),
    ),
]


def prepare(server: Server) -> None:
    (server.directory.parent / "second").mkdir()
    # a name that no client can write disturbs nobody
    os.makedirs(os.fsencode(server.repository) + b"/caf\xe9/1")


@pytest.fixture
def world(server: Server, request: pytest.FixtureRequest) -> Iterator[World]:
    world = World(server, request.param)
    fault = FAULTS[world.name]
    world.write(fault.config, fault.code)
    yield world
    world.unload()
    world.remove()


@pytest.mark.parametrize("world", FAULTS, indirect=True)
def test_the_cause_is_named_and_the_advice_helps(world: World) -> None:
    fault = FAULTS[world.name]
    fault.prepare(world)
    fault.load(world)
    if fault.is_at_load:
        # a check of its files may name the cause before the load has
        eventually(lambda: world.state() not in {"", "LOADING"} or world.is_named(fault.cause), 60)
    else:
        eventually(lambda: world.state() == "READY", 60, world.name)
        fault.provoke(world)

    findings = world.await_cause(fault.cause)
    finding = first(findings, fault.cause)

    said = ctl(world.server, "explain", world.name).output
    assert [] == [words for words in fault.untrue if words in said.rstrip("\n")], said
    assert finding["advice"].startswith(fault.advice), finding
    assert [] == [one for one in findings if "\n" in one["text"]]

    commands = finding["commands"]
    for command in filter(is_showing, commands):
        world.type(command)
    fault.cure(world)
    for command in commands:
        if not is_showing(command):
            world.type(command)
    fault.proof(world)
