"""Repositories on a file system that takes its time, or never answers: the rest goes on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.server import MODELS_DIRECTORY, Server
from tests.support.slow_files import SlowFiles
from tests.support.waiting import eventually
from zmqtriton.control_client import ServerSelector

pytestmark = [
    pytest.mark.system,
    pytest.mark.long(
        "supervisor/machine/reading/test_readers.py::test_a_group_takes_a_few_readers_and_no_more",
        "supervisor/machine/reading/test_readers.py::test_a_cancelled_task_has_no_answer_and_its_reader_ends",
        "supervisor/machine/reading/test_readers.py::test_a_load_goes_on_without_a_repository_that_never_had_the_model",
    ),
]


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


def test_a_model_whose_files_hang_holds_up_no_other_and_not_the_end_of_its_server(
    server: Server, slow: SlowFiles
) -> None:
    with server, ThreadPoolExecutor() as pool:
        slow.hold("one")
        held = [pool.submit(server.control_model, "load", "one") for _ in range(3)]
        slow.await_call()

        assert "" == server.control_model("load", "two")
        assert "" == server.control_model("unload", "one")
        assert all(load.result(120) for load in held)
        again = pool.submit(server.control_model, "load", "one")
        assert "" == server.control_model("load", "three")
        assert {"one", "two", "three", "add_sub"} == set(_index(server))
        assert not again.done()

        slow.delay(0, "one")
        assert "" == again.result(120)

        slow.hold()
        load = pool.submit(server.control_model, "load", "one")
        slow.await_call()
        readers = server.reader_pids()

        assert 0 == server.stop()

    assert load.exception() or load.result(), "it is no success"
    left = [pid for pid in readers if _is_there(pid)]
    assert left, "one was left to the kernel"
    assert all(map(_waits_for_a_disk, left))
    assert 0 == server.status("/v2/health/live")
    slow.delay(0)
    eventually(lambda: not any(map(_is_there, left)), 60, "they end as soon as they can")


def test_a_server_names_the_repository_that_does_not_answer(
    server: Server, slow: SlowFiles, tmp_path: Path
) -> None:
    def ready() -> str:
        with ServerSelector(str(tmp_path / "run")).connect() as client:
            return str(client.call("identity")["ready"])

    with server:
        slow.hold()
        _index(server)
        eventually(lambda: ready().endswith(f"ready; {slow.place} does not answer"), 60, "named")
        slow.delay(0)
        eventually(lambda: ready().endswith("are ready"), 60, "it answers again")


def _waits_for_a_disk(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "D"


def _is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
