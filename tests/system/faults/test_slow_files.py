"""Repositories on a file system that takes its time, or never answers: the rest goes on."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.server import MODELS_DIRECTORY, Server, ask_add_sub
from tests.support.slow_files import SlowFiles
from tests.support.waiting import eventually
from zmqtriton.control_client import Client, ServerSelector, connect

pytestmark = pytest.mark.system


class Load:
    """A load that is under way in a thread."""

    def __init__(self, server: Server, model: str) -> None:
        #: None until it is answered.
        self.error: str | None = None
        self._server = server
        self._model = model
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.error = self._server.control_model("load", self._model)
        except OSError:
            self.error = "the server has ended"

    def outcome(self) -> str:
        self._thread.join(120)
        assert self.error is not None, "the load has no answer"
        return self.error


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[SlowFiles]:
    """Three models, all of which are `add_sub` by another name."""
    source = tmp_path / "source"
    for name in ("one", "two", "three"):
        shutil.copytree(MODELS_DIRECTORY / "add_sub", source / name)
    with SlowFiles(source, tmp_path / "slow") as slow:
        yield slow


@pytest.fixture
def server(tmp_path: Path, slow: SlowFiles) -> Server:
    """The model `add_sub` in a repository of its own, beside the slow one."""
    runtime = tmp_path / "run"
    mode = ("--model-control-mode=explicit", "--load-model=add_sub")
    options = (f"--model-repository={slow.place}", f"--runtime-directory={runtime}", *mode)
    return Server(tmp_path / "s", ["add_sub"], options=options, frontends=())


def _connect(server: Server) -> Client:
    return connect(ServerSelector(str(server.directory.parent / "run")))


def _index(server: Server) -> dict[str, str]:
    """The state of each model, "" for one that was never loaded."""
    status, entries = server.request_json("/v2/repository/index", {})
    assert 200 == status
    return {entry["name"]: entry.get("state", "") for entry in entries}


def _replace(server: Server, find: Callable[[], list[int]]) -> None:
    """Kill a process, and wait until there is another and `add_sub` is served."""
    [pid] = find()
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: find() not in ([], [pid]), 60, "another process")
    eventually(lambda: ask_add_sub(server) == 200, 60, "it serves")


def _check_the_rest_goes_on(server: Server) -> None:
    _replace(server, lambda: server.stub_pids("add_sub"))
    _replace(server, lambda: server.pids().get("broker", []))
    assert "READY" == _index(server)["add_sub"]
    with _connect(server) as client:
        assert client.call("status")["processes"]
    assert "" == server.control_model("unload", "add_sub")
    assert "" == server.control_model("load", "add_sub")
    assert 200 == ask_add_sub(server)


@pytest.mark.long(
    "system/faults/test_slow_files.py::test_a_model_whose_files_hang_holds_up_no_other_of_its_repository",
    "supervisor/machine/reading/test_repositories.py::test_a_listing_has_what_a_silent_repository_had_before",
)
def test_where_no_call_returns_only_its_own_models_wait(server: Server, slow: SlowFiles) -> None:
    with server:
        assert {"add_sub": "READY", "one": "", "three": "", "two": ""} == _index(server)
        slow.hold()
        loads = [Load(server, name) for name in ("one", "two")]
        slow.await_call(2)

        _check_the_rest_goes_on(server)
        entries = _index(server)
        assert [None, None] == [load.error for load in loads]

        assert {"add_sub", "one", "three", "two"} == set(entries)
        assert ("READY", "UNAVAILABLE") == (entries["add_sub"], entries["three"])
        slow.delay(0)
        assert ["", ""] == [load.outcome() for load in loads]
        eventually(lambda: _index(server)["three"] == "", 60, "it is listed again")
        assert "" == server.control_model("load", "three")


def test_a_server_ends_though_calls_of_its_readers_never_do(
    server: Server, slow: SlowFiles
) -> None:
    with server:
        slow.hold()
        load = Load(server, "one")
        slow.await_call()
        readers = server.reader_pids()

        assert 0 == server.stop()

    assert load.outcome()
    left = [pid for pid in readers if _is_there(pid)]
    assert left, "one was left to the kernel"
    assert all(map(_waits_for_a_disk, left))
    assert 0 == server.status("/v2/health/live")
    slow.delay(0)
    eventually(lambda: not any(map(_is_there, left)), 60, "they end as soon as they can")


def test_a_model_whose_files_hang_holds_up_no_other_of_its_repository(
    server: Server, slow: SlowFiles
) -> None:
    with server:
        slow.hold("one")
        held = [Load(server, "one") for _ in range(3)]
        slow.await_call()

        assert "" == server.control_model("load", "two")
        assert "" == server.control_model("unload", "one")
        assert all(load.outcome() for load in held)
        again = Load(server, "one")
        assert "" == server.control_model("load", "three")
        assert {"one", "two", "three", "add_sub"} == set(_index(server))
        assert again.error is None

        slow.delay(0, "one")
        assert "" == again.outcome()


def _waits_for_a_disk(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "D"


def _is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
