"""A process of the server, and the one that holds its ports."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.support.waiting import eventually
from zmqtriton.start import ports
from zmqtriton.start.ports import (
    describe_listener,
    is_shared_with,
    waits_in_systemd,
)
from zmqtriton.supervisor.machine.processes import process as processes
from zmqtriton.supervisor.machine.processes.process import ChildProcess, spawn

pytestmark = pytest.mark.slow


# ----------------------------------------------------------------------------- process


def start(code: str, **how: object) -> ChildProcess:
    return spawn([sys.executable, "-S", "-c", code], descriptors=(), **how)  # type: ignore[arg-type]


def end_of(process: ChildProcess) -> str:
    """Return how it ended; waits for the pidfd as the loop does."""
    await_readable(process.pidfd)
    return process.reap().text


def await_readable(descriptor: int) -> None:
    """Wait as the loop does, also where other tests have left a thousand descriptors open."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    assert poll.poll(20_000)


def await_end_of_pipe(reading: int) -> None:
    """Wait until nobody has its other end any more."""
    await_readable(reading)
    assert os.read(reading, 1) == b""
    os.close(reading)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("", "exited with status 0"),
        ("raise SystemExit(3)", "exited with status 3"),
        ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL"),
        ("import os; os.kill(os.getpid(), 11)", "killed by SIGSEGV"),
    ],
)
def test_a_death_has_a_reason(code: str, reason: str) -> None:
    assert end_of(start(code)) == reason


def test_a_signal_without_a_name_has_its_number() -> None:
    assert processes.describe_exit_status(-77).text == "killed by signal 77"


def test_a_program_that_is_not_there_is_an_error() -> None:
    with pytest.raises(OSError, match="No such file"):
        spawn(["/nowhere/python"], descriptors=())


def test_a_child_leads_a_group_of_its_own_in_the_same_session() -> None:
    process = start("import time; time.sleep(30)")

    assert (process.pid, os.getsid(0)) == (os.getpgid(process.pid), os.getsid(process.pid))
    process.signal(signal.SIGKILL, group=True)
    assert end_of(process) == "killed by SIGKILL"


def test_what_a_dead_child_has_left_in_its_group_is_killed() -> None:
    reading, writing = os.pipe()
    code = (
        "import os, sys, time\n"
        "child = os.fork()\n"
        "if child:\n"
        "    os.write(1, str(child).encode())\n"
        "    os._exit(0)\n"
        "time.sleep(60)\n"
    )
    process = start(code, output=writing)
    os.close(writing)
    orphan = int(os.read(reading, 20))

    end_of(process)

    # The orphan holds the pipe open until it is dead.
    await_end_of_pipe(reading)
    assert orphan


def test_it_dies_with_the_supervisor() -> None:
    """A child of a child: when the one in the middle is killed, so is the last."""
    reading, writing = os.pipe()
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "import os, time\n"
        "from zmqtriton.supervisor.machine.processes.process import spawn\n"
        "spawn([sys.executable, '-c', 'import time; time.sleep(60)'], descriptors=())\n"
        "os.write(1, b'ready')\n"
        "time.sleep(60)\n"
    )
    process = spawn([sys.executable, "-c", code], descriptors=(), output=writing)
    os.close(writing)
    assert os.read(reading, 10) == b"ready"

    os.kill(process.pid, signal.SIGKILL)

    await_end_of_pipe(reading)
    end_of(process)


def test_systemds_variables_are_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/x")

    process = start("import os; raise SystemExit(int('NOTIFY_SOCKET' in os.environ))")

    assert end_of(process) == "exited with status 0"


def test_a_stopped_process_is_frozen_and_a_running_one_is_not() -> None:
    process = start("import time; time.sleep(60)")
    assert not processes.is_frozen(process.pid)

    os.kill(process.pid, signal.SIGSTOP)

    eventually(lambda: processes.is_frozen(process.pid), 20)
    assert process.pid in processes.take_stopped_children()
    assert process.pid not in processes.take_stopped_children()
    process.signal(signal.SIGKILL, group=True)
    end_of(process)
    assert not processes.is_frozen(process.pid)


# ------------------------------------------------------------------------- port holder
# The process that is named in the error of a port in use.


#: Names itself as its argument says, if there is one, and says that it runs.
_HOLDER = """
import pathlib, subprocess, sys, time
if sys.argv[1:]:
    pathlib.Path("/proc/self/comm").write_text(sys.argv[1])
print(flush=True)
time.sleep(600)
"""


#: The same with a worker that is named after it.
_PARENT = """
import pathlib, subprocess, sys
pathlib.Path("/proc/self/comm").write_text("program")
subprocess.run([sys.executable, "-c", sys.argv[1], "program-work"], close_fds=False)
"""


@contextmanager
def held_port(*programs: list[str]) -> Iterator[tuple[int, list[int]]]:
    """A port on which these listen, and their pids."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.set_inheritable(True)
    how: dict[str, Any] = {"close_fds": False, "stdout": subprocess.PIPE, "start_new_session": True}
    with ExitStack() as holders:
        pids: list[int] = []
        for words in programs:
            command = [sys.executable, "-c", *words]
            holder: Any = holders.enter_context(subprocess.Popen(command, **how))
            holders.callback(os.killpg, holder.pid, signal.SIGKILL)
            holder.stdout.readline()
            pids.append(holder.pid)
        with listener:
            port = listener.getsockname()[1]
        yield port, pids


@pytest.mark.parametrize(
    "words", [[_HOLDER], [_PARENT, _HOLDER]], ids=["a program", "a worker of one"]
)
def test_whoever_listens_is_named_without_its_options(words: list[str]) -> None:
    with held_port(words) as (port, [pid]):
        assert f"process {pid} ({sys.executable})" == describe_listener(port)


@pytest.mark.parametrize(
    ("names", "is_shared", "waits"),
    [
        (["systemd"], True, True),
        (["systemd", "zmqtriton"], True, False),
        (["systemd", "another"], False, False),
        (["another", "zmqtriton"], True, False),
        (["another"], False, False),
    ],
)
def test_a_socket_of_systemd_is_that_of_its_service(
    names: list[str], is_shared: bool, waits: bool
) -> None:
    with held_port(*([_HOLDER, name] for name in names)) as (port, _):
        assert (is_shared, waits) == (is_shared_with("zmqtriton", port), waits_in_systemd(port))


def test_a_hidden_holder_of_root_may_be_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_open_files", lambda pid: iter(()))
    monkeypatch.setattr(ports, "listening_sockets", lambda port: iter([("", "7", 0)]))

    assert "a process of user root, or a socket unit (`systemctl list-sockets`)" == (
        describe_listener(8000)
    )


def test_nobody_is_named_where_nobody_listens() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))

        assert "" == describe_listener(silent.getsockname()[1])


def test_one_that_is_hidden_may_have_any_name_if_it_is_this_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert not is_shared_with("zmqtriton", port)

        monkeypatch.setattr(ports, "_open_files", lambda pid: iter(()))

        assert is_shared_with("zmqtriton", port)
        monkeypatch.setattr(os, "geteuid", lambda: 4711)
        assert not is_shared_with("zmqtriton", port)
    assert not is_shared_with("zmqtriton", port)
