"""The stacks that stubs write on request: taken from their outputs, and not logged.

Python writes them in C, in the handler of a signal, so it can even while a model keeps the
interpreter's lock for ever. Nothing marks the end of the stacks: a pause is taken as the end.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from selectors import BaseSelector
from typing import Any

from zmqtriton.supervisor.machine.background import Worker
from zmqtriton.supervisor.machine.processes.output import StubOutput
from zmqtriton.supervisor.story import Promise
from zmqtriton_floor.prctl import SIGNAL_THREAD, STACKS_SIGNAL

_WITHIN_S = 3.0
_LOOK_EVERY_S = 0.02
#: Everything is written after this pause.
_QUIET_S = 0.3


class StackReading:
    """The stacks of one process."""

    def __init__(self, output: StubOutput) -> None:
        """Keep the stacks of this output; the signal must be sent afterwards."""
        self._output = output
        self._written = output.take_stacks()
        self._seen = 0
        self._since_s = time.monotonic()

    def has_ended(self) -> bool:
        """Return whether the process has written all its stacks."""
        count, now_s = len(self._written.lines), time.monotonic()
        if count != self._seen:
            self._seen, self._since_s = count, now_s
        return count > 0 and now_s - self._since_s > _QUIET_S

    def finish(self) -> list[str]:
        """Return the lines of the stacks; from now on such lines are logged."""
        self._output.leave_stacks(self._written)
        return [line.decode("utf-8", "replace") for line in self._written.lines]


def wait_for_stacks(readings: Mapping[int, StackReading]) -> dict[int, list[str]]:
    """Return the lines of processes by their pids; none from a process that is stopped."""
    deadline_s = time.monotonic() + _WITHIN_S
    left = set(readings)
    while left and time.monotonic() < deadline_s:
        time.sleep(_LOOK_EVERY_S)
        left -= {pid for pid in left if readings[pid].has_ended()}
    return {pid: reading.finish() for pid, reading in readings.items()}


class StackReader:
    """Lets stubs write their stacks, and reads them in a thread."""

    def __init__(self, selector: BaseSelector, children: Mapping[int, Any]) -> None:
        self._children = children
        self._worker = Worker(selector, "stacks")

    def read(self, serials: Iterable[int]) -> Promise[dict[int, list[str]]]:
        """Return the lines of stubs by serial number.

        For a process with several instances, the lines are all instances'. A user's process is not
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
                readings[origin.pid] = StackReading(origin.output)
                origin.process.signal(STACKS_SIGNAL, group=False, thread=SIGNAL_THREAD)

        def wait() -> dict[int, list[str]]:
            lines = wait_for_stacks(readings)
            return {serial: lines[pid] for serial, pid in pids.items()}

        return self._worker.submit(wait)

    def close(self) -> None:
        self._worker.close()
