"""Stacks that a process writes at a signal: taken out of its output until all are there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.waiting import eventually
from zmqtriton.logs.log_ring import StubName
from zmqtriton.supervisor.machine.processes import stacks
from zmqtriton.supervisor.machine.processes.output import StackLines, StubOutput
from zmqtriton.supervisor.machine.processes.process import find_thread, signal_thread
from zmqtriton.supervisor.machine.processes.stacks import StackReading
from zmqtriton_floor.prctl import SIGNAL_THREAD, STACKS_SIGNAL

pytestmark = pytest.mark.slow

#: A process like a stub: its thread takes the signal, while the main one keeps Python's lock.
_HANGS = """
import ctypes, faulthandler, signal, sys, threading
sys.path[:0] = {path!r}
from zmqtriton_stub import process
faulthandler.register(signal.SIGURG, sys.stdout)
process.take_signals_elsewhere()
print("ready", flush=True)
def hang():
    ctypes.PyDLL(None).pause()
hang()
"""


class Hanging:
    """A process whose main thread has kept the interpreter's lock since its line."""

    def __init__(self) -> None:
        code = _HANGS.format(path=[str(Path(one).resolve()) for one in sys.path if one])
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert self.process.stdout is not None
        assert b"ready\n" == self.process.stdout.readline()
        self.output = StubOutput(StubName("m", "m_0_0"), self.process.pid, lambda output: None)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        while data := os.read(self.process.stdout.fileno(), 65536):
            self.output.take(data)

    def reading(self) -> StackReading:
        pid = self.process.pid
        reading = StackReading(self.output)
        assert signal_thread(pid, find_thread(pid, SIGNAL_THREAD), STACKS_SIGNAL)
        return reading

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    process = Hanging()
    yield process
    process.close()


def test_a_process_whose_python_stands_still_shows_where(hanging: Hanging) -> None:
    def lines_of_hanging() -> list[str]:
        """Nothing if it does not hang yet, or is too slow to write."""
        [lines] = stacks.wait_for_stacks({1: hanging.reading()}).values()
        return lines if any(line.endswith("in hang") for line in lines) else []

    for _ in range(2):
        lines = eventually(lines_of_hanging, 60, "it hangs, and writes where")

        assert any("await_signals" in line for line in lines)
        assert lines[-1].startswith('  File "<string>", line '), "the main thread comes last"


def test_a_process_that_is_stopped_writes_nothing(hanging: Hanging) -> None:
    os.kill(hanging.process.pid, signal.SIGSTOP)

    reading = hanging.reading()

    assert not reading.has_ended()
    assert {1: []} == stacks.wait_for_stacks({1: reading})


def test_what_is_printed_meanwhile_is_still_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    output = StubOutput(StubName("m", "m_0_0"), 42, lambda output: None)

    written = output.take_stacks()
    output.take(b"before\nThread 0x1 (most recent call first):\n  Fi")
    output.take(b'le "/m.py", line 3 in f\n\nafter\n\n  File "/m.py", line 3, in traceback\n')
    output.leave_stacks(written)
    output.take(b"Thread 0x1 (most recent call first):\n")
    output.catch_up()

    assert [b"Thread 0x1 (most recent call first):", b'  File "/m.py", line 3 in f'] == (
        written.lines
    )
    assert [
        "before",
        "after",
        "",
        '  File "/m.py", line 3, in traceback',
        "Thread 0x1 (most recent call first):",
    ] == [record.getMessage() for record in caplog.records]


def test_a_later_question_is_not_ended_by_an_earlier_one() -> None:
    output = StubOutput(StubName("m", "m_0_0"), 42, lambda output: None)

    first, second = output.take_stacks(), output.take_stacks()
    output.leave_stacks(first)
    output.take(b"Thread 0x1 (most recent call first):\n")

    assert ([], 1) == (first.lines, len(second.lines))


def test_names_of_instances_behind_the_stacks_belong_to_them() -> None:
    written = StackLines()

    rest = written.divert(b"Thread 0x1 is instance m_0_0\nThread 0x1 is mine\n")

    assert b"Thread 0x1 is mine\n" == rest
    assert [b"Thread 0x1 is instance m_0_0"] == written.lines
