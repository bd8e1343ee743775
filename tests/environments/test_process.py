"""The process that prepares an environment, as the supervisor starts it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from zmqtriton.environments.demand import INTERPRETER, EnvironmentSpec
from zmqtriton.supervisor.machine.processes import commands
from zmqtriton_floor import wire
from zmqtriton_floor.lifeline import Lifeline, pair


def _start(directory: Path) -> tuple[subprocess.Popen[bytes], Lifeline, Path]:
    """It is to prepare an interpreter that leaves a trace when it is run."""
    trace, python = directory / "trace", directory / "python"
    python.write_text(f'#!/bin/sh\ntouch {trace}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    ours, theirs = pair()
    demand = EnvironmentSpec(INTERPRETER, python=str(python))
    cache = str(directory / "cache")
    command = commands.environment_command(theirs.fileno(), "m", cache, demand)
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


def test_it_answers_the_call_to_begin(tmp_path: Path) -> None:
    process, line, trace = _start(tmp_path)
    try:
        line.send(wire.Call(0, "prepare", "{}"))
        answers: list[wire.CallResult] = []
        while not answers and line.wait(30):
            answers = [m for m, _ in line.receive() if isinstance(m, wire.CallResult)]
        assert 0 == process.wait(30)
    finally:
        process.kill()
        process.wait()
        line.close()

    assert [0] == [answer.code for answer in answers]
    assert trace.exists()
