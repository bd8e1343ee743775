"""Loads that an unload ends before their model was read, and those that come right after."""

from __future__ import annotations

from typing import Any

import pytest

from tests.supervisor.world import SupervisorHarness, make_blueprint
from zmqtriton.supervisor.actions import LoadOverride


@pytest.mark.parametrize("override", [None, LoadOverride('{"backend": "python"}', "")])
def test_what_an_ended_load_had_asked_for_is_not_taken_for_the_next_ones(
    override: LoadOverride | None,
) -> None:
    world = SupervisorHarness(make_blueprint("m"), control_mode="explicit").start()
    answers: list[Any] = []

    # All in one turn: nothing is read before the last of them.
    world.core.load("m", None, answers.append)
    world.core.models["m"].unload(lambda error: None)
    world.core.load("m", override, answers.append)
    world.run_until_idle()

    assert [True, False] == [error is not None for error in answers]
    assert ["READY"] == [v.state.value for v in world.core.models["m"].versions.values()]
