"""Environments that the supervisor has prepared by a process, or a command before its start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.standard.environments.test_unpack import file, pack
from zmqtriton.environments.demand import ARCHIVE, INTERPRETER, SERVER_ENVIRONMENT, EnvironmentSpec
from zmqtriton.supervisor.machine.processes import commands
from zmqtriton_floor import wire
from zmqtriton_floor.errors import NotFound, ZmqTritonError
from zmqtriton_floor.lifeline import Lifeline, pair
from zmqtriton_standard.environments import ahead


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


def test_it_runs_nothing_before_it_is_told_to_begin(tmp_path: Path) -> None:
    process, line, trace = _start(tmp_path)
    try:
        line.close()
        assert 1 == process.wait(30)
    finally:
        process.kill()
        process.wait()

    assert not trace.exists()


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
