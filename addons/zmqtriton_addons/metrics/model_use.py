"""The processor time and the memory of each model's processes, read when the page is asked for."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from zmqtriton_addons.metrics.processes import Processes

#: A model's name and version.
Key = tuple[str, str]


class Use(NamedTuple):
    #: Since this process looks, processes that have ended included.
    cpu_s: float
    memory_bytes: int


class ModelUse:
    def __init__(self, processes: Processes | None = None) -> None:
        self._processes = Processes() if processes is None else processes
        #: Of processes that have ended, too: a counter must not fall when one is replaced.
        self._cpu_s: dict[Key, float] = {}

    def look(self, rows: Iterable[Mapping[str, Any]]) -> dict[Key, Use]:
        """Return the use by model and version; the rows are the processes of the status."""
        stubs = [row for row in rows if row["role"] == "stub" and row["pid"]]
        # several may be threads of one process
        keys = {row["pid"]: (row["model"], str(row["version"])) for row in stubs}
        self._processes.look(keys, time.monotonic())
        memory: dict[Key, int] = {}
        for pid, key in keys.items():
            usage = self._processes.usage.get(pid)
            if usage is not None:
                memory[key] = memory.get(key, 0) + usage.memory_bytes
                self._cpu_s[key] = self._cpu_s.get(key, 0.0) + usage.cpu_s
        self._cpu_s = {key: self._cpu_s[key] for key in memory}
        return {key: Use(self._cpu_s[key], bytes_) for key, bytes_ in memory.items()}
