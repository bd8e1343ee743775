"""Threads of the supervisor for slow questions; the answers return to its loop."""

from __future__ import annotations

import logging
import os
import selectors
import socket
import threading
from collections.abc import Callable, Mapping
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from zmqtriton.supervisor.machine.capacity import available_bytes
from zmqtriton.supervisor.models.memory_measurements import MemoryReport

_KIB = 1024

#: Gets the ticket of the request, and the answer.
OnMeasured = Callable[[int, MemoryReport], None]


class MemoryGauge:
    """Measures the memory of processes in a thread, since the kernel may take long to answer.

    `measured` is called in the service's loop. Shared pages count in parts (PSS) where the
    kernel reports that, else whole.
    """

    def __init__(self, selector: selectors.BaseSelector, measured: OnMeasured) -> None:
        self._worker = Worker(selector, "memory")
        self._on_measured = measured

    def measure(self, ticket: int, names: Mapping[int, str]) -> None:
        """Measure these processes, and add them up by name."""
        self._worker.submit(partial(_measure, names), partial(self._on_measured, ticket))

    def close(self) -> None:
        self._worker.close()


def _measure(names: Mapping[int, str]) -> MemoryReport:
    sums: dict[str, int] = {}
    for pid, name in names.items():
        sums[name] = sums.get(name, 0) + process_memory_bytes(pid)
    return MemoryReport(sums, available_bytes())


def process_memory_bytes(pid: int) -> int:
    """Return the memory of a process in bytes; 0 if there is no such process."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * _KIB
    except OSError:
        pass  # a process of another user, or a dead one; the next file tells which
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as words:
            return int(words.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


_log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")

_ENDS_WITHIN_S = 1.0


class Worker:
    """Runs one task after the other; the thread begins with the first.

    Where no thread can begin the service waits, since whoever asks needs the answer to go on.
    """

    def __init__(self, selector: selectors.BaseSelector, name: str) -> None:
        self._selector = selector
        self._name = name
        self._tasks: SimpleQueue[Callable[[], Callable[[], None]] | None] = SimpleQueue()
        self._deliveries: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lacks_thread = False
        self._ours: socket.socket
        self._theirs: socket.socket

    def submit(self, task: Callable[[], _Answer], then: Callable[[_Answer], None]) -> None:
        """Have the task run; `then` gets its answer, in the loop of the selector."""
        if self._thread is None and not self._begin():
            then(task())
        else:
            self._tasks.put(lambda: partial(then, task()))

    def _begin(self) -> bool:
        """Begin the thread; return False where none can begin, the next task tries again."""
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        ours, theirs = socket.socketpair()
        try:
            thread.start()
        except RuntimeError as error:
            ours.close()
            theirs.close()
            if not self._lacks_thread:
                self._lacks_thread = True
                _log.warning("the loop itself does the work of '%s': %s", self._name, error)
            return False
        self._ours, self._theirs, self._thread = ours, theirs, thread
        self._selector.register(ours, selectors.EVENT_READ, self._deliver)
        return True

    def close(self) -> None:
        """End the thread, unless it is in a call that the kernel does not end."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join(_ENDS_WITHIN_S)
            self._selector.unregister(self._ours)
            self._ours.close()
            self._theirs.close()

    def _deliver(self) -> None:
        for _ in self._ours.recv(64):
            self._deliveries.get()()

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            self._deliveries.put(task())
            try:
                self._theirs.send(b"!")
            except OSError:
                return  # nobody waits for it any more


class Background:
    """The parts that have a thread each, once they are asked."""

    def __init__(
        self, selector: selectors.BaseSelector, answer: Callable[[int, Any], None]
    ) -> None:
        """Set up; `answer` gets the ticket of an action and its outcome."""
        self.gauge = MemoryGauge(selector, answer)

    def close(self) -> None:
        self.gauge.close()
