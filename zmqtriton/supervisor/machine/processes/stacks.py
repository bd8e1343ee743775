"""The stacks that stubs write when they are asked to: taken out of their outputs, and not logged.

Python writes them in C, in the handler of a signal, so also where a model keeps the interpreter's
lock for ever. Nothing tells their end but the kernel: of the thread that has taken the signal it is
known whether it is still in the handler. Where it is another thread, a pause is the end.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from zmqtriton.supervisor.machine.processes.process import find_thread
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
    """Return what processes have written, by their pids; a stopped one has written nothing."""
    deadline_s = time.monotonic() + _WITHIN_S
    left = set(readings)
    while left and time.monotonic() < deadline_s:
        time.sleep(_LOOK_EVERY_S)
        left -= {pid for pid in left if readings[pid].has_ended()}
    return {pid: reading.finish() for pid, reading in readings.items()}


def is_in_handler(pid: int, thread: int, number: int) -> bool | None:
    """Return whether a thread has not yet left the handler of a signal; None if that is unknown."""
    bit = 1 << (number - 1)
    with suppress(OSError, ValueError, IndexError):
        text = Path(f"/proc/{pid}/task/{thread}/status").read_text()
        masks = [text.split(f"{name}:\t", 1)[1].split("\n", 1)[0] for name in ("SigPnd", "SigBlk")]
        return any(int(mask, 16) & bit for mask in masks)
    return None
