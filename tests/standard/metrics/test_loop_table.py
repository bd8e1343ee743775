"""Turns of the loops of all processes."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from tests.supervisor.features.core_parts import core_parts
from zmqtriton.supervisor.control.verbs import ControlCall
from zmqtriton_standard.metrics.loop_table import LoopTable

TIMES = {"cpu_s": 0.3, "stood_s": 0.0, "waited_s": 0.0, "locked_s": 0.0}
TURN = {**TIMES, "at_s": 5.0, "place": "f (a.py:1)"}


def report(*counts: int, longest: dict[str, Any] | None = None) -> dict[str, Any]:
    filled = [*counts, *[0] * (9 - len(counts))]
    return {"counts": filled, "sum_s": sum(counts) / 100, "longest": longest}


class World:
    """The feature, with processes that report and end."""

    def __init__(self) -> None:
        self.living = {"http": [7], "grpc": [8], "metrics": [6]}
        audience = SimpleNamespace(
            serials=lambda roles: [s for role in roles for s in self.living.get(role, ())]
        )
        self.feature = LoopTable(
            core_parts(
                audience=audience,
                policy=SimpleNamespace(frontend_roles=("http-arbiter", "grpc", "metrics")),
                info=SimpleNamespace(loop_turns=dict),
                introductions=SimpleNamespace(broker_serial=1),
                counts=SimpleNamespace(turns={}),
            )
        )

    def take(self, serial: int, document: dict[str, Any]) -> None:
        self.feature.verbs["turns"].handle(ControlCall(serial, document))

    def of_process(self, serial: int, role: str = "http") -> Mapping[str, Any]:
        return self.feature.describe_process({"role": role, "serial": serial})


@pytest.fixture
def world() -> World:
    return World()


def test_counts_outlive_their_process(world: World) -> None:
    world.take(7, report(1, 1))
    world.take(7, report(3, 1))
    world.living["http"] = [9]
    world.feature.describe([])
    world.take(9, report(2))

    [row] = world.feature.describe([])["turns"]

    assert row == {"role": "http", "counts": [5, 1, 0, 0, 0, 0, 0, 0, 0], "sum_s": 0.06}


def test_each_process_has_its_longest_turn_as_long_as_it_tells_one(world: World) -> None:
    assert world.of_process(7) == {}

    world.take(7, report(1, longest=TURN))
    assert world.of_process(7) == {"longest_turn": TURN}

    world.take(7, report(1))
    assert world.of_process(7) == {"longest_turn": None}


def test_what_has_another_form_does_not_count(world: World) -> None:
    for bad in ({}, {"counts": "x"}, {"counts": [1]}, {**report(1), "sum_s": None}):
        world.take(7, bad)

    assert [] == world.feature.describe([])["turns"]
    world.take(7, report(1, longest={"cpu_s": "x"}))
    assert world.of_process(7) == {"longest_turn": None}


def test_a_process_for_which_others_have_waited_is_told_in_words(world: World) -> None:
    world.take(6, report(1, longest={**TURN, "locked_s": 19.5}))
    world.take(7, report(1, longest=TURN))
    world.take(8, report(1, longest={**TURN, "cpu_s": 0.2}))

    assert world.feature.describe([])["slow_loops"] == [
        {
            "resource": "loop",
            "text": "others have lately waited 19.80 s for the process 'metrics' "
            "(0.30 s of CPU, 0.00 s in calls, 19.50 s for a lock): it was in f (a.py:1)",
        },
        {
            "resource": "loop",
            "text": "others have lately waited 0.30 s for the process 'http' "
            "(0.30 s of CPU, 0.00 s in calls): it was in f (a.py:1)",
        },
    ]
