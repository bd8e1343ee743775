"""Measures the memory of processes in a thread, since the kernel may take long to answer.

`measured` is called in the service's loop. Shared pages count in parts (PSS) where the
kernel reports that, else whole.
"""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable, Mapping
from functools import partial

from zmqtriton.supervisor.machine.background.worker import Worker
from zmqtriton.supervisor.machine.capacity import available_bytes
from zmqtriton.supervisor.models.memory_measurements import MemoryReport

_KIB = 1024

#: Gets the ticket of the request, and the answer.
OnMeasured = Callable[[int, MemoryReport], None]


class MemoryGauge:
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
