"""Deaths of processes and their forks, and their last words in the log."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.faults import deaths
from tests.faults.load import Load
from tests.support import leaks, scripted
from tests.support.server import Server, ask_add_sub, tensor
from tests.support.waiting import eventually
from tests.system.shared_server import SharedServer
from zmqtriton_floor import execution_progress

pytestmark = [pytest.mark.system, pytest.mark.large_tensors, pytest.mark.as_nobody]


# ------------------------------------------------------------------------------- forks
# Processes that models start: they are no second stub, and they end with the stub.


#: Starts a program in a session of its own, a process that has left everything, and a fork in
#: another session; the argument names a file for their numbers.
STRAYS = """
    import os, subprocess, time
    program = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    pids = [program.pid]
    for is_daemon in (False, True):
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.setsid()
            if is_daemon and os.fork():
                os._exit(0)
            os.write(writing, str(os.getpid()).encode())
            time.sleep(1000)
            os._exit(0)
        pids.append(int(os.read(reading, 20)))
    return [reply(" ".join(map(str, pids)))]
"""


def kill_stub(server: Server) -> None:
    os.kill(server.stub_pids("scripted")[0], signal.SIGKILL)


def unload(server: Server) -> None:
    assert not server.control_model("unload", "scripted")


@pytest.mark.parametrize("end", [kill_stub, unload])
def test_nothing_outlives_its_stub(shared: SharedServer, end: Callable[[Server], object]) -> None:
    shared.load("scripted")
    _check_strays(shared, end)


@pytest.mark.long(
    "system/faults/test_forks.py::test_nothing_outlives_its_stub",
    "system/faults/test_forks.py::test_a_killed_supervisor_leaves_nothing_and_a_new_start_works",
)
@pytest.mark.parametrize("is_spawned", [False, True], ids=["forked stub", "spawned stub"])
def test_nothing_outlives_its_server(tmp_path: Path, is_spawned: bool) -> None:
    # Beside a sitecustomize of its own a stub is not forked.
    (tmp_path / "sitecustomize.py").touch()
    with Server(
        tmp_path / "s",
        models=["scripted"],
        options=["--log-verbose=1"],
        environment={"PYTHONPATH": str(tmp_path)} if is_spawned else {},
        frontends=(),
    ) as server:
        _check_strays(server, kill_stub)
        _check_strays(server, Server.kill)
        assert is_spawned == ("every stub is spawned: " in server.log_text())
        assert "the fork-server process" not in server.log_text()


def _check_strays(server: Server, end: Callable[[Server], object]) -> None:
    """Check that what a stub of `scripted` has started ends with it."""
    pids = eventually(lambda: _stray_pids(server), 30, "a stub that has started some")
    assert all(map(psutil.pid_exists, pids))

    end(server)

    eventually(lambda: not any(map(leaks.is_alive, pids)), 60, "they are gone")


def test_what_living_stubs_have_started_lives_on(shared: SharedServer) -> None:
    shared.add_model("scripted", "another")
    shared.load("scripted", "another")
    pids = [int(pid) for pid in scripted.generate(shared, "scripted", STRAYS).split()]

    shared.replace_only("stub", "another")

    assert all(map(leaks.is_alive, pids))


def test_a_model_that_forks_and_returns_in_both_processes_is_one_stub(
    shared: SharedServer,
) -> None:
    script = "import os\nreturn [reply(os.fork())]"
    shared.load("scripted")
    # a fork of one before shows itself in the same way, while it ends
    eventually(lambda: len(shared.stub_pids("scripted")) == 1, 60, "one stub")
    [stub] = shared.stub_pids("scripted")

    children = [int(scripted.generate(shared, "scripted", script)) for _ in range(20)]

    assert min(children) > 0, "a child has answered"
    # their numbers may be those of others by now
    eventually(lambda: not {*children} & _living(shared), 60, "the children have ended")
    assert [stub] == shared.stub_pids("scripted")
    assert "ok" == scripted.generate(shared, "scripted", "return [reply('ok')]")
    unload(shared)
    eventually(lambda: not shared.stub_pids("scripted"), 60, "the stub has ended")


def _stray_pids(server: Server) -> list[int]:
    """Return them; [] while the stub is replaced."""
    words = scripted.generate(server, "scripted", STRAYS).split()
    return [int(word) for word in words] if all(map(str.isdigit, words)) else []


def _living(server: Server) -> set[int]:
    pids = [each.pid for each in psutil.Process(server.pid).children(recursive=True)]
    return {*filter(leaks.is_alive, pids)}


# -------------------------------------------------------------------------- last words
# Messages of stubs that have died are delivered, however late the broker comes to read them.


#: Begins, waits for the word, answers, and dies when the answer has been sent: when each of its
#: threads has been found asleep ten times in a row, and none that wants to go on, however long the
#: machine keeps it waiting.
_LAST = """
import os
import pathlib
import threading
import time

import triton_python_backend_utils as pb_utils

def is_asleep(task):
    return (task / "stat").read_text().rpartition(")")[2].split()[0] == "S"

def die():
    own, looks = str(threading.get_native_id()), 0
    while looks < 10:
        time.sleep(0.02)
        others = [t for t in pathlib.Path("/proc/self/task").iterdir() if t.name != own]
        looks = looks + 1 if all(map(is_asleep, others)) else 0
    os._exit(3)

class TritonPythonModel:
    def execute(self, requests):
        tensor = pb_utils.get_input_tensor_by_name(requests[0], "DIRECTORY")
        directory = pathlib.Path(tensor.as_numpy().ravel()[0].decode())
        (directory / f"begun-{os.getpid()}").touch()
        while not (directory / "answer").exists():
            time.sleep(0.002)
        threading.Thread(target=die).start()
        return [pb_utils.InferenceResponse(output_tensors=[tensor])]
"""


_CONFIG = """
backend: "python"
input [ { name: "DIRECTORY" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "DIRECTORY" data_type: TYPE_STRING dims: [ 1 ] } ]
instance_group [ { count: 4 kind: KIND_CPU } ]
"""


def _ask(server: Server) -> list[str]:
    """Return what the model answers."""
    status, answer = server.infer_json("last", tensor("DIRECTORY", "BYTES", [str(server.scratch)]))
    assert 200 == status, answer
    return answer["outputs"][0]["data"]


def test_what_stubs_sent_while_the_broker_slept_is_delivered(shared: SharedServer) -> None:
    shared.write_model("last", _CONFIG, _LAST)
    shared.load("last")
    with ThreadPoolExecutor(4) as clients:
        [broker] = shared.pids()["broker"]
        stubs = set(shared.stub_pids("last"))
        answers = [clients.submit(_ask, shared) for _ in stubs]
        eventually(lambda: len([*shared.scratch.glob("begun-*")]) == len(stubs), 30, "executions")

        os.kill(broker, signal.SIGSTOP)
        try:
            (shared.scratch / "answer").touch()
            eventually(lambda: not stubs & set(shared.stub_pids("last")), 30, "deaths of the stubs")
        finally:
            os.kill(broker, signal.SIGCONT)

        assert [[str(shared.scratch)]] * 4 == [answer.result(60) for answer in answers]
        assert [broker] == shared.pids()["broker"]


# ------------------------------------------------------------------------------ deaths
# Deaths under load: only what was lost with a process fails, and it comes back.


def test_a_killed_stub_costs_what_it_executed_and_nothing_else(shared: SharedServer) -> None:
    shared.load("journal")
    hits = kills = 0
    with Load(shared.http_port, clients=8, milliseconds=deaths.EXECUTION_MS) as load:
        while hits < 2:
            kills += 1
            hits += deaths.kill_stub(shared, load) is not None
            time.sleep(0.5)
    deaths.check_stubs(shared, load, hits, kills)


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


def test_a_model_that_overwrites_its_progress_page_is_replaced(shared: SharedServer) -> None:
    (shared.add_model("add_sub") / "1" / "model.py").write_text(
        _SCRIBBLES.replace("BYTE", "0xFF").replace("SIZE", str(execution_progress.SIZE))
    )
    shared.load("add_sub")
    first = shared.stub_pids("add_sub")
    assert 200 == ask_add_sub(shared)

    assert 200 == ask_add_sub(shared), "what it had not begun goes to the next one"

    assert first != shared.stub_pids("add_sub")
    eventually(lambda: "how far it is was overwritten" in shared.log_text(), 30, "the reason")


@pytest.mark.row("B19")
def test_a_killed_supervisor_leaves_nothing_and_a_new_start_works(tmp_path: Path) -> None:
    deaths.kill_supervisor(tmp_path)
