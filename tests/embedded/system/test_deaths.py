"""Deaths of the owner, a guest, a stub, the broker and the server, and what is left of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest

import zmqtriton
from tests.support.server import ROOT
from tests.support.server import Server as Repository
from tests.support.waiting import eventually
from tests.system.shared_server import SharedServer
from zmqtriton.embedded.connection import Connection
from zmqtriton_floor.errors import Unavailable

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("zmq_threads")]

_MODELS = ("identity_fp32", "tokens")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return Repository(tmp_path / "s", models=_MODELS).repository


@pytest.fixture
def ending(tmp_path: Path) -> Iterator[Repository]:
    """A server that others have started, and that ends."""
    options = [f"--runtime-directory={tmp_path}/run"]
    with Repository(tmp_path / "s", _MODELS, options=options, frontends=()) as server:
        yield server


def _connected(server: Repository) -> Connection:
    return zmqtriton.connect(path=f"{server.directory.parent}/run")


@contextmanager
def _guest(server: Repository, code: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that is connected to the server as `c`; it has done so once it prints."""
    connect = f"import zmqtriton\nc = zmqtriton.connect(path='{server.directory.parent}/run')\n"
    command = [sys.executable, "-c", connect + textwrap.dedent(code)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as guest:
        assert guest.stdout is not None
        assert guest.stdout.readline() == "ready\n"
        try:
            yield guest
        finally:
            guest.kill()


def test_a_server_ends_with_its_owner_whatever_kills_it(repository: Path) -> None:
    code = f"""
        import time, zmqtriton
        server = zmqtriton.Server({str(repository)!r}, log_info=False).start()
        print(server.pid, server.runtime_directory, flush=True)
        time.sleep(600)
    """
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert owner.stdout is not None
    pid, directory = owner.stdout.readline().split()
    main = psutil.Process(int(pid))
    processes = [main, *main.children(recursive=True)]

    owner.kill()
    owner.wait()

    _, alive = psutil.wait_procs(processes, 60)
    assert alive == []
    eventually(lambda: not os.path.exists(directory), 30, "its directory to go")
    owner.stdout.close()


def test_it_stops_when_it_is_told_and_says_how_it_ended(
    repository: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server = zmqtriton.Server(repository)
    assert server.stop() == 0

    server.start()
    assert server.ready
    with pytest.raises(Unavailable, match="started already"):
        server.start()
    model = server.model("identity_fp32")
    assert server.stop() == 0

    assert ("", "") == capfd.readouterr()
    assert not server.live
    with pytest.raises(Unavailable, match="connection to the server is closed"):
        next(model.infer(inputs={"INPUT0": [1]}))
    assert not os.path.exists(server.runtime_directory)


def test_a_server_that_cannot_start_says_so(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="the server has ended with 1"):
        zmqtriton.Server(tmp_path / "nothing").start()


def test_a_guest_that_is_killed_leaves_nothing(shared: SharedServer) -> None:
    shared.load(*_MODELS)
    code = """
        import numpy as np, time
        stream = c.model("tokens").infer(
            inputs={"COUNT": [100_000], "DELAY_US": [1000]}, request_id="orphan"
        )
        next(stream)
        large = next(c.model("identity_fp32").infer(inputs={"INPUT0": np.zeros(1 << 20, "f")}))
        print("ready", flush=True)
        time.sleep(600)
    """
    with _guest(shared, code):
        pass

    eventually(lambda: "orphan" in shared.journal.read_text(), 30, "the cancelling")
    with _connected(shared) as connection:
        numbers = np.arange(1 << 20, dtype=np.float32)
        [response] = connection.model("identity_fp32").infer(inputs={"INPUT0": numbers})
        assert np.array_equal(numbers, response.outputs["OUTPUT0"])


def test_a_guest_that_is_halted_holds_up_nobody_and_is_never_killed(ending: Repository) -> None:
    with (
        _guest(ending, 'import time; print("ready", flush=True); time.sleep(600)') as guest,
        _connected(ending) as connection,
    ):
        guest.send_signal(signal.SIGSTOP)
        time.sleep(3)  # a process that is halted for two looks of the supervisor is frozen
        assert connection.model("identity_fp32").is_ready()
        assert guest.poll() is None

        assert ending.stop() == 0

        assert guest.poll() is None
        eventually(lambda: not connection.live, 30, "the end of the connection")


def test_a_fork_is_told_to_connect_anew(shared: SharedServer) -> None:
    shared.load("identity_fp32")
    with _connected(shared) as connection:
        model = connection.model("identity_fp32")
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            try:
                next(model.infer(inputs={"INPUT0": [1]}))
            except Unavailable as error:
                os.write(writing, error.text.encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(writing)

        assert "forked" in os.read(reading, 1000).decode()
        os.close(reading)
        assert connection.live
