"""Measures a server while it is attacked, and asks it as an honest client."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from tests.support.server import Server

MIB = 1 << 20


class AttackWatch:
    """Measures while the block runs."""

    def __init__(
        self,
        server: Server,
        role: str,
        directory: Path,
        ask: Callable[[], int],
        *,
        look_every_s: float,
        ask_every_s: float,
    ) -> None:
        """Set up for HTTP's process and another one, which writes into the directory.

        `ask` returns the status of an answer.
        """
        self._server = server
        self._roles = ("http", role)
        self._directory = directory
        self._ask_once = ask
        self._look_every_s, self._ask_every_s = look_every_s, ask_every_s
        self._is_over = threading.Event()
        self.most_mib: Counter[str] = Counter()
        self.disk_bytes = 0
        self.waited_ms: list[float] = []
        self.failed: Counter[int] = Counter()
        self.before = self._sizes()
        self._threads = [threading.Thread(target=work) for work in (self._measure, self._ask)]

    def __enter__(self) -> AttackWatch:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    @property
    def more_mib(self) -> Counter[str]:
        return self.most_mib - self.before

    def _sizes(self) -> Counter[str]:
        pids = self._server.pids()
        return Counter(
            {
                role: sum(psutil.Process(pid).memory_info().rss for pid in pids[role]) // MIB
                for role in self._roles
            }
        )

    def _measure(self) -> None:
        while not self._is_over.wait(self._look_every_s):
            self.most_mib |= self._sizes()
            self.disk_bytes = max(self.disk_bytes, size_of(self._directory))

    def _ask(self) -> None:
        while not self._is_over.wait(self._ask_every_s):
            begun = time.monotonic()
            status = self._ask_once()
            self.waited_ms.append((time.monotonic() - begun) * 1000)
            if status != 200:
                self.failed[status] += 1


def size_of(directory: Path) -> int:
    """Return the size of all files, some of which go meanwhile."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.stat(os.path.join(folder, name)).st_size
    return total
