"""Figures of frontends about their clients, and turns of the loops of all processes."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from tests.supervisor.features.core_parts import core_parts
from zmqtriton.supervisor.control.verbs import ControlCall
from zmqtriton_standard.metrics.client_counts import ClientCounts
from zmqtriton_standard.metrics.loop_table import LoopTable


class World:
    """A feature, with processes that report and end."""

    def __init__(self, feature: type[ClientCounts | LoopTable]) -> None:
        self.living = {"http": [7, 9], "grpc": [8], "metrics": [6]}
        audience = SimpleNamespace(
            serials=lambda roles: [s for role in roles for s in self.living.get(role, ())]
        )
        self._feature = feature(
            core_parts(
                audience=audience,
                policy=SimpleNamespace(frontend_roles=("http-arbiter", "grpc", "metrics")),
                info=SimpleNamespace(loop_turns=dict),
                introductions=SimpleNamespace(broker_serial=1),
                counts=SimpleNamespace(turns={}),
            )
        )

    def take(self, serial: int, document: dict[str, Any]) -> None:
        [verb] = self._feature.verbs.values()
        verb.handle(ControlCall(serial, document))

    def describe(self, table: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._feature.describe([])[table]
        return rows

    def of_process(self, serial: int) -> Mapping[str, Any]:
        return self._feature.describe_process({"role": "http", "serial": serial})


@pytest.fixture
def clients() -> World:
    return World(ClientCounts)


@pytest.fixture
def loops() -> World:
    return World(LoopTable)


# --------------------------------------------------------------------- clients
MEMORY = {"requests_bytes": 1, "answers_bytes": 2, "requests_refused": 3, "answers_refused": 4}


def figures(answers: int, **more: Any) -> dict[str, Any]:
    return {"role": "http", "connections": 2, "counts": {"answers": {"200": answers}}, **more}


def total(world: World) -> int:
    [row] = world.describe("clients")
    assert ("http", "answers", "200") == (row["role"], row["counter"], row["label"])
    count: int = row["count"]
    return count


def test_counters_of_processes_are_added_up_and_outlive_them(clients: World) -> None:
    clients.take(7, figures(5))
    clients.take(8, figures(3))
    clients.take(7, figures(7))

    clients.living["http"].remove(7)
    before = total(clients)
    clients.take(9, figures(1))

    assert (10, 11) == (before, total(clients))


def test_memory_and_connections_are_those_of_the_process(clients: World) -> None:
    clients.take(7, figures(0, memory=MEMORY))
    clients.take(8, figures(0))

    assert {"client_memory": MEMORY, "connections": 2} == clients.of_process(7)
    assert {"connections": 2} == clients.of_process(8)
    clients.living["http"].remove(7)
    clients.take(8, figures(0))
    assert {} == clients.of_process(7)


def test_a_guest_may_tell_anything(clients: World) -> None:
    for nonsense in (
        {},
        {"memory": 3, "connections": "x", "counts": [1]},
        {"memory": {"requests_bytes": "x"}, "counts": {"a": 1, "b": {"c": None, "d": -4}}},
        figures(True, memory={"requests_bytes": True}),
        figures(
            0,
            memory={"requests_bytes": "x"},
            counts={"x": {str(number): 1 for number in range(5000)}},
        ),
    ):
        clients.take(7, nonsense)

    assert len(clients.describe("clients")) <= 1024
    assert 0 == clients.of_process(7)["client_memory"]["requests_bytes"]


# ----------------------------------------------------------------------- loops
TIMES = {"cpu_s": 0.3, "stood_s": 0.0, "waited_s": 0.0, "locked_s": 0.0}
TURN = {**TIMES, "at_s": 5.0, "place": "f (a.py:1)"}


def report(*counts: int, longest: dict[str, Any] | None = None) -> dict[str, Any]:
    filled = [*counts, *[0] * (9 - len(counts))]
    return {"counts": filled, "sum_s": sum(counts) / 100, "longest": longest}


def test_counts_outlive_their_process(loops: World) -> None:
    loops.take(7, report(1, 1))
    loops.take(7, report(3, 1))
    loops.living["http"].remove(7)
    loops.describe("turns")
    loops.take(9, report(2))

    [row] = loops.describe("turns")

    assert row == {"role": "http", "counts": [5, 1, 0, 0, 0, 0, 0, 0, 0], "sum_s": 0.06}


def test_each_process_has_its_longest_turn_as_long_as_it_tells_one(loops: World) -> None:
    assert loops.of_process(7) == {}

    loops.take(7, report(1, longest=TURN))
    assert loops.of_process(7) == {"longest_turn": TURN}

    loops.take(7, report(1))
    assert loops.of_process(7) == {"longest_turn": None}


def test_what_has_another_form_does_not_count(loops: World) -> None:
    for bad in ({}, {"counts": "x"}, {"counts": [1]}, {**report(1), "sum_s": None}):
        loops.take(7, bad)

    assert [] == loops.describe("turns")
    loops.take(7, report(1, longest={"cpu_s": "x"}))
    assert loops.of_process(7) == {"longest_turn": None}


def test_a_process_for_which_others_have_waited_is_told_in_words(loops: World) -> None:
    loops.take(6, report(1, longest={**TURN, "locked_s": 19.5}))
    loops.take(7, report(1, longest=TURN))
    loops.take(8, report(1, longest={**TURN, "cpu_s": 0.2}))

    assert loops.describe("slow_loops") == [
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
