"""Models with a known fault: explain or profile names the cause of each, and nothing untrue."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest

from tests.standard.ctl.system.commands import OPTION, ctl
from tests.standard.tools.advice.world import World
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton_extras.inspection.tests.advice.models_at_work import AT_WORK, AtWork

pytestmark = [
    pytest.mark.system,
    pytest.mark.long(
        "extras/inspection/test_explaining.py::test_an_ensemble_has_its_slowest_step_named_and_is_not_scaled"
    ),
    pytest.mark.server(
        models=("add_sub",),
        options=[
            "--model-control-mode=explicit",
            "--load-model=add_sub",
            "--exit-on-error=false",
            "--exit-timeout-secs=1",
            OPTION,
        ],
        frontends=(),
    ),
]
#: Of these lines of a profile one must be the cause.
_FIRST = 2


def prepare(server: Server) -> None:
    """Write all models."""
    for name, model in AT_WORK.items():
        world = World(server, name)
        for other, (config, code) in model.others.items():
            World(server, other).write(config, code)
        world.write(model.config, model.code or None)
        for file, text in model.files.items():
            path = world.code.parent / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def said_by_explain(world: World) -> str:
    done = ctl(world.server, "explain", world.name)
    assert 0 == done.exit_code, done.output
    return done.output


def said_by_profile(world: World) -> list[str]:
    """Return the lines of the model where most of the time goes, as findings have places."""
    done = ctl(world.server, "profile", world.name, "--seconds", "1", "--json")
    if done.exit_code:
        return []  # nothing was seen of it
    lines = json.loads(done.stdout)["lines"]
    return [f"{one['file'].rpartition('/')[2]}, line {one['line']}" for one in lines[:_FIRST]]


def is_named(world: World, model: AtWork) -> bool:
    said = said_by_explain(world)
    assert [] == [words for words in model.untrue if words in said], said
    if model.missed:
        return True
    if model.named:
        return any(words in said for words in model.named)
    return model.place() in said or model.place() in said_by_profile(world)


@pytest.mark.parametrize("name", AT_WORK)
def test_the_cause_is_named_and_nothing_untrue(name: str, server: Server) -> None:
    model, world = AT_WORK[name], World(server, name)
    for other in model.others:
        assert "" == world.load(other)
    assert "" == world.load()

    with contextmanager(model.use)(world):
        eventually(lambda: is_named(world, model), 90, f"{name}: {model.named or model.place()}")

    world.unload()


def test_nine_of_ten_causes_are_named() -> None:
    assert 20 == len(AT_WORK)
    assert 18 <= sum(not model.missed for model in AT_WORK.values())
