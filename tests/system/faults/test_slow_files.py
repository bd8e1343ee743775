"""Repositories on a file system that takes its time, or never answers: the rest goes on."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server import MODELS_DIRECTORY, Server
from tests.support.slow_files import SlowFiles
from tests.support.waiting import eventually

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


def _index(server: Server) -> dict[str, str]:
    """The state of each model, "" for one that was never loaded."""
    status, entries = server.request_json("/v2/repository/index", {})
    assert 200 == status
    return {entry["name"]: entry.get("state", "") for entry in entries}


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
