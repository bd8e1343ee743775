"""The memory of processes, as the kernel counts it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def kib(pid: int, what: str) -> int:
    """Return a line of smaps_rollup; 0 of a process that has ended."""
    with suppress(OSError):
        text = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii")
        return sum(map(int, re.findall(rf"^{what}:\s+(\d+)", text, re.M)))
    return 0


def pss_mib(pids: Iterable[int]) -> float:
    """Return that of several together; a page that several have counts in part."""
    return sum(kib(pid, "Pss") for pid in pids) / 1024
