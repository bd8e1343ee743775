"""Figures of frontends about their clients."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from tests.supervisor.features.core_parts import core_parts
from zmqtriton.supervisor.control.verbs import ControlCall
from zmqtriton_standard.metrics.client_counts import ClientCounts

MEMORY = {"requests_bytes": 1, "answers_bytes": 2, "requests_refused": 3, "answers_refused": 4}


class World:
    """The feature, with frontends that report and end."""

    def __init__(self) -> None:
        self.living = [1, 2, 3]
        audience = SimpleNamespace(serials=lambda roles: self.living)
        policy = SimpleNamespace(frontend_roles=("http-arbiter",))
        self.feature = ClientCounts(core_parts(audience=audience, policy=policy))

    def take(self, serial: int, figures: dict[str, Any]) -> None:
        self.feature.verbs["clients"].handle(ControlCall(serial, figures))

    def of_process(self, serial: int) -> Mapping[str, Any]:
        return self.feature.describe_process({"role": "http", "serial": serial})

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.feature.describe([])["clients"]
        return rows

    def total(self) -> int:
        [row] = self.rows()
        assert ("http", "answers", "200") == (row["role"], row["counter"], row["label"])
        count: int = row["count"]
        return count


def figures(answers: int, **more: Any) -> dict[str, Any]:
    return {"role": "http", "connections": 2, "counts": {"answers": {"200": answers}}, **more}


@pytest.fixture
def world() -> World:
    return World()


def test_counters_of_processes_are_added_up_and_outlive_them(world: World) -> None:
    world.take(1, figures(5))
    world.take(2, figures(3))
    world.take(1, figures(7))

    world.living.remove(1)
    before = world.total()
    world.take(3, figures(1))

    assert (10, 11) == (before, world.total())


def test_memory_and_connections_are_those_of_the_process(world: World) -> None:
    world.take(1, figures(0, memory=MEMORY))
    world.take(2, figures(0))

    assert {"client_memory": MEMORY, "connections": 2} == world.of_process(1)
    assert {"connections": 2} == world.of_process(2)
    world.living.remove(1)
    world.take(2, figures(0))
    assert {} == world.of_process(1)


def test_a_guest_may_tell_anything(world: World) -> None:
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
        world.take(1, nonsense)

    assert len(world.rows()) <= 1024
    assert 0 == world.of_process(1)["client_memory"]["requests_bytes"]
