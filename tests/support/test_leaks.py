"""The search for leaks must itself be able to fail."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import leaks
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

_SLEEPER = "import time; time.sleep(60)"
_TELLING_SLEEPER = f"print(flush=True); {_SLEEPER}"
# Starts a process in a session of its own, waits until it runs (while it only begins to, it shows
# no environment yet), and ends: its child belongs to nobody any more.
_ORPHANING = (
    "import subprocess, sys;"
    f"orphan = subprocess.Popen([sys.executable, '-c', {_TELLING_SLEEPER!r}],"
    " start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL);"
    "orphan.stdout.readline(); print(orphan.pid)"
)


def test_a_process_left_behind_is_named_and_killed(session_mark: str) -> None:
    before = leaks.take_snapshot(session_mark, beside_others=True)
    command = [sys.executable, "-c", _TELLING_SLEEPER]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # while it only begins to run, it has no command line yet

        lines = leaks.find_leaks(before, session_mark, within_s=0)

        assert [f"process {process.pid}: {sys.executable} -c {_TELLING_SLEEPER}"] == lines
        assert -9 == process.wait(10)


def test_an_orphan_in_its_own_session_is_found(session_mark: str) -> None:
    before = leaks.take_snapshot(session_mark, beside_others=True)
    output = subprocess.run([sys.executable, "-c", _ORPHANING], check=True, capture_output=True)
    orphan = int(output.stdout)

    lines = leaks.find_leaks(before, session_mark, within_s=0)

    assert [str(orphan)] == [line.split()[1].rstrip(":") for line in lines]
    eventually(lambda: not leaks.is_alive(orphan), 30)


def test_shared_memory_left_behind_is_named(session_mark: str) -> None:
    before = leaks.take_snapshot(session_mark)
    path = Path(f"/dev/shm/zmqtriton-test-{session_mark}")
    path.touch()
    try:
        lines = leaks.find_leaks(before, session_mark, within_s=0)
    finally:
        path.unlink()

    assert str(path) in lines


def test_descriptors_left_open_are_counted(session_mark: str) -> None:
    gc.collect()  # or what another test has dropped is closed meanwhile
    before = leaks.take_snapshot(session_mark, beside_others=True)
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(5)]
    try:
        lines = leaks.find_leaks(before, session_mark, within_s=0)
    finally:
        for descriptor in opened:
            os.close(descriptor)

    text = ", ".join(["/dev/null"] * 5)
    assert f"5 file descriptors of this process: {text}" in lines


def test_waiting_gives_up_with_its_message() -> None:
    with pytest.raises(AssertionError, match=r"not within 0 s: never"):
        eventually(lambda: False, 0, "never")
