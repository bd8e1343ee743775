"""Processes that models start: they are no second stub, and they end with the stub."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.support import scripted
from tests.support.server import Server
from tests.support.waiting import eventually
from tests.system.shared_server import SharedServer

pytestmark = [pytest.mark.system, pytest.mark.as_nobody]

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


@pytest.mark.parametrize(
    "ends", [(kill_stub, unload, Server.stop), (Server.kill,)], ids=["ends of stubs", "killed"]
)
@pytest.mark.parametrize(
    "is_spawned",
    [
        False,
        pytest.param(
            True,
            marks=pytest.mark.long("system/faults/test_forks.py::test_nothing_outlives_its_stub"),
        ),
    ],
    ids=["forked stub", "spawned stub"],
)
def test_nothing_outlives_its_stub(
    tmp_path: Path, ends: Sequence[Callable[[Server], object]], is_spawned: bool
) -> None:
    # Beside a sitecustomize of its own a stub is not forked.
    (tmp_path / "sitecustomize.py").touch()
    environment = {"PYTHONPATH": str(tmp_path)} if is_spawned else {}
    options = ["--model-control-mode=explicit", "--load-model=scripted"]
    with Server(
        tmp_path / "s",
        models=["scripted"],
        options=options,
        environment=environment,
        frontends=(),
    ) as server:
        for end in ends:
            assert "" == server.control_model("load", "scripted")
            pids = eventually(lambda: _stray_pids(server), 30, "a stub that has started some")
            assert all(map(psutil.pid_exists, pids))

            end(server)

            eventually(partial(_have_ended, pids), 60, "they are gone")


def test_what_living_stubs_have_started_lives_on(shared: SharedServer) -> None:
    server = shared
    server.load("scripted", "scripted_async")
    pids = [int(pid) for pid in scripted.generate(server, "scripted", STRAYS).split()]
    [stub] = server.stub_pids("scripted_async")

    os.kill(stub, signal.SIGKILL)

    eventually(lambda: server.stub_pids("scripted_async") not in ([], [stub]), 30, "another")
    assert all(map(_is_running, pids))


def test_a_model_that_forks_and_returns_in_both_processes_is_one_stub(
    shared: SharedServer,
) -> None:
    script = "import os\nreturn [reply(os.fork())]"
    server = shared
    server.load("scripted")
    # a fork of one before shows itself in the same way, while it ends
    eventually(lambda: len(server.stub_pids("scripted")) == 1, 60, "one stub")
    [stub] = server.stub_pids("scripted")

    children = [int(scripted.generate(server, "scripted", script)) for _ in range(50)]

    assert min(children) > 0, "a child has answered"
    # their numbers may be those of others by now
    eventually(lambda: not {*children} & _living(server), 60, "the children have ended")
    assert [stub] == server.stub_pids("scripted")
    assert "ok" == scripted.generate(server, "scripted", "return [reply('ok')]")
    unload(server)
    eventually(lambda: not server.stub_pids("scripted"), 60, "the stub has ended")


def _stray_pids(server: Server) -> list[int]:
    """Return them; [] while the stub is replaced."""
    words = scripted.generate(server, "scripted", STRAYS).split()
    return [int(word) for word in words] if all(map(str.isdigit, words)) else []


def _living(server: Server) -> set[int]:
    assert server.process is not None
    pids = [each.pid for each in psutil.Process(server.process.pid).children(recursive=True)]
    return {*filter(_is_running, pids)}


def _have_ended(pids: Iterable[int]) -> bool:
    return not any(map(_is_running, pids))


def _is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
