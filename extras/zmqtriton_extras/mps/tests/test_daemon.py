"""The control daemon, by a program that stands for NVIDIA's: it has not run on a GPU yet."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import eventually
from zmqtriton_extras.mps import daemon

pytestmark = pytest.mark.system
#: Takes the commands of NVIDIA's program on its stdin, and answers them from the daemon.
_STAND_IN = f"""#!{sys.executable}
import os, socket, sys
from pathlib import Path
pipe = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
if sys.argv[1:] == ["-d"]:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(pipe / "control"))
    listener.listen()
    if os.fork():
        os._exit(0)
    os.setsid()
    (pipe / "pid").write_text(str(os.getpid()))
    while True:
        with listener.accept()[0] as caller:
            words = caller.recv(100).decode().split()
            if words == ["quit"]:
                sys.exit()
            clients = "12\\n34" if words[1:] == ["77"] else ""
            answers = {{"get_server_list": "77", "get_client_list": clients}}
            caller.sendall(answers[words[0]].encode())
with socket.socket(socket.AF_UNIX) as caller:
    caller.connect(str(pipe / "control"))
    caller.sendall(sys.stdin.readline().encode())
    print(caller.recv(100).decode())
"""


@pytest.fixture(autouse=True)
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "nvidia-cuda-mps-control"
    program.parent.mkdir()
    program.write_text(_STAND_IN)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def pid_in(directory: Path) -> int:
    eventually((directory / "pipe/pid").exists, 30)
    return int(eventually((directory / "pipe/pid").read_text, 30))


def assert_gone(directory: Path, pid: int) -> None:
    eventually(lambda: not directory.exists() and not Path(f"/proc/{pid}").exists(), 30)


def test_a_daemon_names_its_clients_and_ends_with_its_guard(tmp_path: Path) -> None:
    directory = daemon.directory_of(os.getpid(), str(tmp_path))
    guard, problem = daemon.start(directory)
    pid = pid_in(directory)

    assert guard is not None, problem
    assert (12, 34) == daemon.read_clients(directory)

    daemon.end(guard)
    assert 0 == guard.wait(30)
    assert_gone(directory, pid)
    assert () == daemon.read_clients(directory)


_OWNER = """
import os, sys, time
from zmqtriton_extras.mps import daemon
kept = daemon.start(daemon.directory_of(os.getpid(), sys.argv[1]))
print(kept.guard.pid, flush=True)
time.sleep(600)
"""


def killed_owner(tmp_path: Path, *, with_guard: bool) -> tuple[Path, int]:
    """Return the directory and the pid of a daemon whose owner was killed."""
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(tmp_path)], stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        guard = int(owner.stdout.readline())
        directory = daemon.directory_of(owner.pid, str(tmp_path))
        pid = pid_in(directory)
        if with_guard:
            os.kill(guard, signal.SIGKILL)
        owner.kill()
    return directory, pid


def test_a_daemon_ends_if_its_server_is_killed(tmp_path: Path) -> None:
    assert_gone(*killed_owner(tmp_path, with_guard=False))


def test_the_next_server_ends_the_daemon_of_one_that_was_killed_with_its_guard(
    tmp_path: Path,
) -> None:
    left, pid = killed_owner(tmp_path, with_guard=True)
    assert left.exists()

    guard, _ = daemon.start(daemon.directory_of(os.getpid(), str(tmp_path)))

    assert_gone(left, pid)
    assert guard is not None
    daemon.end(guard)
    guard.wait(30)


def test_a_machine_without_the_daemon_is_said_to_lack_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin" / "nvidia-cuda-mps-control").unlink()

    guard, problem = daemon.start(daemon.directory_of(os.getpid(), str(tmp_path)))

    assert guard is None
    assert "cannot be started: [Errno 2]" in problem
