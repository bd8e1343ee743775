"""The stacks that stubs write when they are asked to: taken out of their outputs, and not logged.

Python writes them in C, in the handler of a signal, so also where a model keeps the interpreter's
lock for ever. Nothing tells their end but the kernel: of the thread that has taken the signal it is
known whether it is still in the handler. Where it is another thread, a pause is the end.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from selectors import BaseSelector
from typing import Protocol

from zmqtriton.supervisor.machine.background import Worker
from zmqtriton.supervisor.machine.processes.process import ChildProcess, find_thread
from zmqtriton.supervisor.story import Promise
from zmqtriton_floor.prctl import SIGNAL_THREAD, STACKS_SIGNAL

#: Lines of stacks as Python writes them, and behind them the names of threads that are instances.
_LINE = re.compile(
    rb"(Current thread|Thread|Stack) .*most recent call first|"
    rb'  File ".*", line (\d+|\?\?\?) in |  \.\.\.$|  <|Thread 0x\w+ is instance '
)
_MOST_LINES = 20_000
_WITHIN_S = 3.0
_LOOK_EVERY_S = 0.02
#: Everything is written after this pause, by what is known of the handler.
_QUIET_S = {False: 0.06, None: 0.3}


class StackLines:
    """The lines of stacks among those of one output, from a question for them on."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def divert(self, whole: bytes) -> bytes:
        """Keep the lines that belong to stacks, and return the others."""
        others: list[bytes] = []
        is_within = False
        for line in whole.splitlines(keepends=True):
            is_within = bool(_LINE.match(line)) or (is_within and not line.strip())
            if not is_within:
                others.append(line)
            elif line.strip() and len(self.lines) < _MOST_LINES:
                self.lines.append(line.rstrip())
        return b"".join(others)


class StackOutput(Protocol):
    """The output of a process, as far as stacks are concerned."""

    def take_stacks(self) -> StackLines:
        """Keep the lines of stacks from now on, in place of logging them, and return them."""

    def leave_stacks(self, stacks: StackLines) -> None:
        """Log such lines again."""


class AskedChild(Protocol):
    """A child, as far as stacks are concerned."""

    pid: int
    #: The serial of the process whose thread it is; 0 for a process.
    host: int

    @property
    def output(self) -> StackOutput | None:
        """The output of a stub."""

    @property
    def process(self) -> ChildProcess | None:
        """The process, if it is a child of this one."""


class StackReading:
    """The stacks of one process."""

    def __init__(self, output: StackOutput, pid: int) -> None:
        """Keep the stacks of this output; the signal is sent afterwards."""
        self._output = output
        self._written = output.take_stacks()
        self._pid = pid
        self._thread = find_thread(pid, SIGNAL_THREAD)
        self._seen = 0
        self._since_s = time.monotonic()

    def has_ended(self) -> bool:
        """Return whether the process has written everything."""
        is_writing = is_in_handler(self._pid, self._thread, STACKS_SIGNAL)
        count, now_s = len(self._written.lines), time.monotonic()
        if is_writing or count != self._seen:
            self._seen, self._since_s = count, now_s
        return not is_writing and count > 0 and now_s - self._since_s > _QUIET_S[is_writing]

    def finish(self) -> list[str]:
        """Return the lines of the stacks; from now on such lines are logged."""
        self._output.leave_stacks(self._written)
        return [line.decode("utf-8", "replace") for line in self._written.lines]


def wait_for_stacks(readings: Mapping[int, StackReading]) -> dict[int, list[str]]:
    """Return the lines of processes by their pids; a stopped one has written none."""
    deadline_s = time.monotonic() + _WITHIN_S
    left = set(readings)
    while left and time.monotonic() < deadline_s:
        time.sleep(_LOOK_EVERY_S)
        left -= {pid for pid in left if readings[pid].has_ended()}
    return {pid: reading.finish() for pid, reading in readings.items()}


class StackReader:
    """Has stubs write their stacks, and reads them in a thread."""

    def __init__(self, selector: BaseSelector, children: Mapping[int, AskedChild]) -> None:
        self._children = children
        self._worker = Worker(selector, "stacks")

    def read(self, serials: Iterable[int]) -> Promise[dict[int, list[str]]]:
        """Return the lines of stubs by serial.

        Of a process with several instances they are those of all. The process of a user is not
        asked.
        """
        readings, pids = dict[int, StackReading](), dict[int, int]()
        for serial in serials:
            child = self._children.get(serial)
            origin = child and self._children.get(child.host, child)
            if origin is None or origin.output is None or origin.process is None:
                continue
            pids[serial] = origin.pid
            if origin.pid not in readings:
                readings[origin.pid] = StackReading(origin.output, origin.pid)
                origin.process.signal(STACKS_SIGNAL, group=False, thread=SIGNAL_THREAD)

        def wait() -> dict[int, list[str]]:
            lines = wait_for_stacks(readings)
            return {serial: lines[pid] for serial, pid in pids.items()}

        return self._worker.submit(wait)

    def close(self) -> None:
        self._worker.close()


def is_in_handler(pid: int, thread: int, number: int) -> bool | None:
    """Return whether a thread has not yet left the handler of a signal; None if that is unknown."""
    bit = 1 << (number - 1)
    with suppress(OSError, ValueError, IndexError):
        text = Path(f"/proc/{pid}/task/{thread}/status").read_text()
        masks = [text.split(f"{name}:\t", 1)[1].split("\n", 1)[0] for name in ("SigPnd", "SigBlk")]
        return any(int(mask, 16) & bit for mask in masks)
    return None
