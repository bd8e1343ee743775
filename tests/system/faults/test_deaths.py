"""Deaths under load: only what was lost with a process fails, and it comes back."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.faults import stub_death, supervisor_death
from tests.faults.load import Load
from tests.support.server import Server, ask_add_sub
from tests.support.waiting import eventually
from tests.system.shared_server import SharedServer
from zmqtriton_floor import execution_progress

pytestmark = [pytest.mark.system, pytest.mark.as_nobody]


@pytest.mark.parametrize(("clients", "pause_s"), [(1, 0.03), (8, 0.0)], ids=["half", "full"])
def test_a_killed_stub_costs_what_it_executed_and_nothing_else(
    shared: SharedServer, clients: int, pause_s: float
) -> None:
    server = shared
    server.load("journal")
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


_SCRIBBLES = """
import ctypes
import triton_python_backend_utils as pb_utils

def scribble():
    for line in open("/proc/self/maps"):
        place, rights, *_ = line.split()
        begin, end = (int(part, 16) for part in place.split("-"))
        if rights == "rw-s" and end - begin == SIZE:
            ctypes.memset(begin, BYTE, SIZE)

class TritonPythonModel:
    def execute(self, requests):
        scribble()
        return [pb_utils.InferenceResponse([pb_utils.Tensor(
            "OUTPUT0", pb_utils.get_input_tensor_by_name(r, "INPUT0").as_numpy()
        ), pb_utils.Tensor(
            "OUTPUT1", pb_utils.get_input_tensor_by_name(r, "INPUT1").as_numpy()
        )]) for r in requests]
"""


def test_a_model_that_overwrites_its_progress_page_is_replaced(tmp_path: Path) -> None:
    server = Server(tmp_path / "s", models=["add_sub"], frontends=())
    code = server.repository / "add_sub" / "1" / "model.py"
    code.write_text(
        _SCRIBBLES.replace("BYTE", "0xFF").replace("SIZE", str(execution_progress.SIZE))
    )

    with server:
        first = server.stub_pids("add_sub")
        assert 200 == ask_add_sub(server)

        assert 200 == ask_add_sub(server), "what it had not begun goes to the next one"

        assert first != server.stub_pids("add_sub")
        eventually(lambda: "how far it is was overwritten" in server.log_text(), 30, "the reason")


@pytest.mark.row("B19")
def test_a_killed_supervisor_leaves_nothing_and_a_new_start_works(tmp_path: Path) -> None:
    supervisor_death.kill_and_measure(tmp_path)
