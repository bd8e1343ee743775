"""The cache of environments, and those that a process or a command has prepared."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.standard.environments.test_unpack import file, pack
from tests.support.reports import Reports
from zmqtriton.environments.demand import ARCHIVE, INTERPRETER, SERVER_ENVIRONMENT, EnvironmentSpec
from zmqtriton.environments.users import default_root, lock_in_use
from zmqtriton.long_steps import StepProgress
from zmqtriton.supervisor.machine.processes import commands
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError, NotFound, ZmqTritonError
from zmqtriton_floor.lifeline import Lifeline, pair
from zmqtriton_standard.environments import ahead
from zmqtriton_standard.environments.cache import (
    BUILT,
    EnvironmentCache,
)


def write(text: str):  # type: ignore[no-untyped-def]
    return lambda tree: (tree / "file").write_text(text)


def test_an_entry_is_made_once(tmp_path: Path) -> None:
    cache = EnvironmentCache(str(tmp_path))

    first = cache.get_or_create(BUILT, "x", "source", write("first"), Reports())
    second = EnvironmentCache(str(tmp_path)).get_or_create(
        BUILT, "x", "source", write("second"), Reports()
    )

    assert first == second
    assert "first" == (second / "file").read_text()
    assert [("x", "source")] == [(entry.name, entry.source) for entry in cache.entries()]


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    cache = EnvironmentCache(str(tmp_path))

    def fail(tree: Path) -> None:
        (tree / "half").touch()
        raise InternalError("no")

    with pytest.raises(InternalError):
        cache.get_or_create(BUILT, "x", "source", fail, Reports())

    assert not (tmp_path / BUILT / "x").exists()
    assert (
        "whole"
        == (cache.get_or_create(BUILT, "x", "", write("whole"), Reports()) / "file").read_text()
    )


def test_the_second_waits_for_the_first(tmp_path: Path) -> None:
    cache = EnvironmentCache(str(tmp_path))
    has_begun, may_end = threading.Event(), threading.Event()

    def slowly(tree: Path) -> None:
        has_begun.set()
        may_end.wait(30)
        (tree / "file").write_text("first")

    first = threading.Thread(target=cache.get_or_create, args=(BUILT, "x", "", slowly, Reports()))
    first.start()
    has_begun.wait(30)

    class Second(Reports):
        def progress(self, latest: StepProgress) -> None:
            super().progress(latest)
            may_end.set()

    said = Second()
    tree = cache.get_or_create(BUILT, "x", "", write("second"), said)
    first.join(30)

    waits = "waiting for another process that makes the same environment"
    assert ([waits], [StepProgress(waits)]) == (said.texts, said.steps)
    assert "first" == (tree / "file").read_text()


def test_what_a_dead_maker_left_is_swept_and_what_is_being_made_is_not(tmp_path: Path) -> None:
    cache = EnvironmentCache(str(tmp_path))
    kept = cache.get_or_create(BUILT, "kept", "", write(""), Reports())
    for name in ("dead", "living"):
        (tmp_path / BUILT / name / "tree").mkdir(parents=True)

    with open(tmp_path / BUILT / "living.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        count = cache.remove_incomplete()

    assert 1 == count
    assert kept.exists()
    assert not (tmp_path / BUILT / "dead").exists()
    assert (tmp_path / BUILT / "living").exists()


@pytest.mark.slow
def test_a_maker_that_is_killed_holds_nobody_up(tmp_path: Path) -> None:
    code = (
        "import os, sys; from zmqtriton_standard.environments.cache import *\n"
        "def fill(tree): (tree / 'half').touch(); os._exit(9)\n"
        "EnvironmentCache(sys.argv[1]).get_or_create(BUILT, 'x', '', fill, print)"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)

    tree = EnvironmentCache(str(tmp_path)).get_or_create(BUILT, "x", "", write("whole"), Reports())

    assert 9 == killed.returncode
    assert ["file"] == [path.name for path in tree.iterdir()]


def test_nothing_is_cleaned_while_a_server_uses_it(tmp_path: Path) -> None:
    cache = EnvironmentCache(str(tmp_path))
    tree = cache.get_or_create(BUILT, "x", "", write(""), Reports())
    held = lock_in_use(str(tmp_path))
    assert held is not None

    with pytest.raises(InternalError, match="a running server uses the environments"):
        cache.remove_all()
    assert tree.exists()
    os.close(held)

    assert 1 == cache.remove_all()
    assert [] == cache.entries()


def test_a_content_has_one_digest_wherever_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # some seconds after the files were written
    monkeypatch.setattr(time, "time", lambda: os.stat(tmp_path).st_ctime + 10)
    cache = EnvironmentCache(str(tmp_path / "cache"))
    digests = []
    for name, content in (("a", b"same"), ("b", b"same"), ("c", b"other")):
        path = tmp_path / name
        path.write_bytes(content)
        for _ in range(2):
            with path.open("rb") as file:
                digests.append(cache.file_digest(file, str(path), Reports()))
                assert 0 == file.tell()

    assert digests[0:2] == digests[2:4]
    assert digests[0] == digests[1]
    assert digests[0] != digests[4]
    # Remembered while the file looks the same, even if somebody has tampered with its content.
    assert 3 == len(list((tmp_path / "cache" / "digests").iterdir()))


def test_a_file_that_was_just_written_is_read_again(tmp_path: Path) -> None:
    cache, path = EnvironmentCache(str(tmp_path / "cache")), tmp_path / "a"
    digests = []
    for content in (b"one", b"two"):
        path.write_bytes(content)
        with path.open("rb") as file:
            digests.append(cache.file_digest(file, str(path), Reports()))

    assert digests[0] != digests[1]


def test_where_nothing_can_be_kept_is_said_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(InternalError, match=r"cannot be kept in .*--environment-directory"):
        EnvironmentCache(str(tmp_path / "file" / "cache"))
    assert lock_in_use(str(tmp_path / "file" / "cache")) is None


def test_the_place_is_systemds_then_the_desktops_then_the_homes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/home/x")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("CACHE_DIRECTORY", raising=False)
    roots = [default_root()]
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    roots.append(default_root())
    monkeypatch.setenv("CACHE_DIRECTORY", "/var/cache/a:/var/cache/b")
    roots.append(default_root())

    assert [
        "/home/x/.cache/zmqtriton/environments",
        "/xdg/zmqtriton/environments",
        "/var/cache/a/environments",
    ] == roots


def _start(
    directory: Path, demand: EnvironmentSpec | None = None
) -> tuple[subprocess.Popen[bytes], Lifeline, Path]:
    """It is to prepare this, or an interpreter that leaves a trace when it is run."""
    trace, python = directory / "trace", directory / "python"
    python.write_text(f'#!/bin/sh\ntouch {trace}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    ours, theirs = pair()
    demand = demand or EnvironmentSpec(INTERPRETER, python=str(python))
    command = commands.environment_command(theirs.fileno(), "m", str(directory / "cache"), demand)
    process = subprocess.Popen(command, pass_fds=(theirs.fileno(),))
    theirs.close()
    return process, Lifeline(ours), trace


@pytest.mark.slow
def test_it_runs_nothing_before_it_is_told_to_begin(tmp_path: Path) -> None:
    process, line, trace = _start(tmp_path)
    try:
        line.close()
        assert 1 == process.wait(30)
    finally:
        process.kill()
        process.wait()

    assert not trace.exists()


@pytest.mark.slow
def test_it_says_how_far_it_is(tmp_path: Path) -> None:
    python = f'#!/bin/sh\nexec {sys.executable} "$@"\n'.encode()
    members = [file("bin/activate"), file("bin/python", python, mode=0o755)]
    archive = pack(tmp_path / "env.tar.gz", [*members, file("weights", os.urandom(4 << 20))])
    process, line, _ = _start(tmp_path, EnvironmentSpec(ARCHIVE, str(archive)))
    heard: list[Any] = []
    try:
        line.send(wire.Call(0, "prepare", "{}"))
        while not any(isinstance(m, wire.CallResult) for m in heard) and line.wait(30):
            heard += [message for message, _ in line.receive()]
        assert 0 == process.wait(30)
    finally:
        process.kill()
        process.wait()
        line.close()

    steps = [m for m in heard if isinstance(m, wire.PreparationProgress)]
    for title in (f"Reading {archive}", f"Extracting Python execution env {archive}"):
        shares = [step.done / step.total for step in steps if step.title == title]
        assert 0.0 == shares[0]
        assert sorted(set(shares)) == shares
        assert any(0.0 < share < 1.0 for share in shares)


def test_the_models_of_a_repository_are_read(tmp_path: Path) -> None:
    for name, config in (
        ("plain", 'backend: "python"'),
        ("wanting", 'parameters { key: "PYTHON_EXECUTABLE" value { string_value: "python3.9" } }'),
        ("broken", "backend: ["),
        ("whole", 'platform: "ensemble" ensemble_scheduling { }'),
    ):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1" / "model.py").touch()
        (tmp_path / name / "config.pbtxt").write_text(config)

    results = {
        entry.model: entry.result for entry in ahead.read_environments(tmp_path, may_build=False)
    }
    alone = list(ahead.read_environments(tmp_path / "wanting", may_build=False))

    assert SERVER_ENVIRONMENT == results["plain"]
    assert EnvironmentSpec("interpreter", python="python3.9") == results["wanting"]
    assert isinstance(results["broken"], ZmqTritonError)
    assert [("wanting", results["wanting"], True)] == alone
    with pytest.raises(NotFound):
        list(ahead.read_environments(tmp_path / "nothing", may_build=False))
    assert os.path.isdir(tmp_path / "plain")
