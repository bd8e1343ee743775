"""Measures the memory of processes in a thread, since the kernel may take long to answer.

`measured` is called in the service's loop. Shared pages count in parts (PSS) where the
kernel reports that, else whole.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
from collections.abc import Callable, Mapping
from queue import SimpleQueue

from zmqtriton.supervisor.machine.available_memory import available_bytes
from zmqtriton.supervisor.models.memory_measurements import MemoryReport

_KIB = 1024

#: Gets the ticket of the request, and the answer.
OnMeasured = Callable[[int, MemoryReport], None]


class MemoryGauge:
    def __init__(self, selector: selectors.BaseSelector, measured: OnMeasured) -> None:
        self._selector = selector
        self._on_measured = measured
        self._requests: SimpleQueue[tuple[int, Mapping[int, str]] | None] = SimpleQueue()
        self._results: SimpleQueue[tuple[int, MemoryReport]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ours: socket.socket
        self._theirs: socket.socket

    def measure(self, ticket: int, names: Mapping[int, str]) -> None:
        """Measure these processes, and add them up by name."""
        if self._thread is None:
            self._ours, self._theirs = socket.socketpair()
            self._selector.register(self._ours, selectors.EVENT_READ, self._deliver_results)
            self._thread = threading.Thread(target=self._measure_loop, name="memory", daemon=True)
            self._thread.start()
        self._requests.put((ticket, names))

    def close(self) -> None:
        if self._thread is not None:
            self._requests.put(None)
            self._thread.join()
            self._selector.unregister(self._ours)
            self._ours.close()
            self._theirs.close()

    def _deliver_results(self) -> None:
        for _ in self._ours.recv(64):
            self._on_measured(*self._results.get())

    def _measure_loop(self) -> None:
        while (request := self._requests.get()) is not None:
            ticket, names = request
            sums: dict[str, int] = {}
            for pid, name in names.items():
                sums[name] = sums.get(name, 0) + process_memory_bytes(pid)
            self._results.put((ticket, MemoryReport(sums, available_bytes())))
            self._theirs.send(b"!")


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
