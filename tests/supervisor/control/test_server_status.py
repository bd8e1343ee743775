"""The status of the server, and staged files of loads."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.supervisor.world import Call, SupervisorHarness, make_blueprint
from zmqtriton.supervisor.control.server_status import LoopTurnsTable, describe_holders
from zmqtriton_floor.errors import InvalidArgument

# ------------------------------------------------------------------- held memory


def test_who_holds_memory_of_models_is_told() -> None:
    stub = {"role": "stub", "serial": 3, "pid": 30, "model": "m", "version": 1}
    guest = {"role": "guest", "serial": 4, "pid": 40}
    much, little = 5 << 20, 1000

    rows = describe_holders(
        [(4, 3, much), (3, 3, little), (4, 4, much), (9, 3, much)], [stub, guest]
    )

    assert [{"role": "guest", "pid": 40, "model": "m", "version": 1, "bytes": much}] == rows


# ------------------------------------------------------------------- loop turns
TIMES = {"cpu_s": 0.3, "stood_s": 0.0, "waited_s": 0.0, "locked_s": 0.0}
TURN = {**TIMES, "at_s": 5.0, "place": "f (a.py:1)"}


def report(*counts: int, longest: dict[str, Any] | None = None) -> dict[str, Any]:
    filled = [*counts, *[0] * (9 - len(counts))]
    return {"counts": filled, "sum_s": sum(counts) / 100, "longest": longest}


@pytest.fixture
def table() -> LoopTurnsTable:
    return LoopTurnsTable()


def test_counts_outlive_their_process(table: LoopTurnsTable) -> None:
    table.take(7, "http", report(1, 1))
    table.take(7, "http", report(3, 1))
    table.forget(7)
    table.take(8, "http", report(2))

    [row] = table.describe()

    assert row == {"role": "http", "counts": [5, 1, 0, 0, 0, 0, 0, 0, 0], "sum_s": 0.06}


def test_each_process_has_its_longest_turn_as_long_as_it_tells_one(table: LoopTurnsTable) -> None:
    assert table.describe_process(7) == {}

    table.take(7, "http", report(1, longest=TURN))
    assert table.describe_process(7) == {"longest_turn": TURN}

    table.take(7, "http", report(1))
    assert table.describe_process(7) == {"longest_turn": None}


def test_what_has_another_form_does_not_count(table: LoopTurnsTable) -> None:
    for bad in ({}, {"counts": "x"}, {"counts": [1]}, {**report(1), "sum_s": None}):
        table.take(7, "http", bad)

    assert table.describe() == []
    table.take(7, "http", report(1, longest={"cpu_s": "x"}))
    assert table.describe_process(7) == {"longest_turn": None}


def test_a_process_for_which_others_have_waited_is_told_in_words(table: LoopTurnsTable) -> None:
    table.take(7, "http", report(1, longest=TURN))
    table.take(8, "grpc", report(1, longest={**TURN, "cpu_s": 0.2}))
    table.take(6, "metrics", report(1, longest={**TURN, "locked_s": 19.5}))

    assert table.slow_loops({6: "metrics", 7: "http", 8: "grpc", 9: "broker"}) == [
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


# ------------------------------------------------------------------------ staged files


_numbers = itertools.count(1)


@pytest.fixture
def world() -> SupervisorHarness:
    return SupervisorHarness(
        make_blueprint("m"), control_mode="explicit", startup_models=("m",)
    ).start()


def staged(caller: int) -> str:
    return f"{caller}-{next(_numbers):016x}"


def load(world: SupervisorHarness, caller: int, name: str, model: str = "m") -> Call:
    arguments = {"model": model, "parameters": {"config": "{}"}, "files": {"staged": name}}
    return world.call_as(caller, "load", arguments)


@pytest.fixture
def caller(world: SupervisorHarness) -> int:
    return world.serial("grpc")


@pytest.mark.row("C73")
def test_a_load_without_files_goes_back_to_the_disk(caller: int, world: SupervisorHarness) -> None:
    name = staged(caller)
    load(world, caller, name)

    world.call("load", {"model": "m"})

    assert "/models/m" == world.generation("m").blueprint.directory
    assert [f"/run/x/files/{name}"] == world.removed


def test_nobody_takes_what_another_has_staged(world: SupervisorHarness) -> None:
    caller, other = world.serial("grpc"), world.serial("m_0_0")
    name = staged(caller)
    load(world, caller, name)

    answers = [
        load(world, who, what)
        for who, what in [
            (caller, name),
            (other, name),
            (other, staged(caller)),
            (other, f"{other}-{'0' * 16}/../{name}"),
            (other, f"../{name}"),
        ]
    ]

    assert {InvalidArgument.number} == {answer.error[0] for answer in answers}
    assert [] == world.removed
