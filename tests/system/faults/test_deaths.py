"""Deaths under load: only what was lost with a process fails, and it comes back."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.faults import stub_death, supervisor_death
from tests.faults.load import Load
from tests.support.server import Server

pytestmark = pytest.mark.system


@pytest.mark.parametrize(("clients", "pause_s"), [(1, 0.03), (8, 0.0)], ids=["half", "full"])
def test_a_killed_stub_costs_what_it_executed_and_nothing_else(
    tmp_path: Path, clients: int, pause_s: float
) -> None:
    with Server(tmp_path / "s", models=["journal"]) as server:
        deaths = kills = 0
        with Load(
            server.http_port,
            clients=clients,
            milliseconds=stub_death.EXECUTION_MS,
            pause_s=pause_s,
        ) as load:
            while deaths < 3:
                kills += 1
                deaths += stub_death.kill_and_measure(server, load) is not None
                time.sleep(0.5)
        stub_death.check(server, load.outcomes, deaths, kills)


@pytest.mark.row("B19")
def test_a_killed_supervisor_leaves_nothing_and_a_new_start_works(tmp_path: Path) -> None:
    supervisor_death.kill_and_measure(tmp_path)
