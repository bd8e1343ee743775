"""The memory and the processor time of a server's processes, which the kernel shows of all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
#: The fields of /proc/PID/stat behind the name, which may contain anything.
_UTIME, _STIME, _RESIDENT = 11, 12, 21
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class Use(NamedTuple):
    #: Pages that several processes share count in each.
    memory_bytes: int = 0
    #: Since the start of the process.
    cpu_s: float = 0.0


def read_use(pid: int, proc: Path = PROC) -> Use | None:
    """Return the use of a process; None if it has ended."""
    try:
        fields = (proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    ticks = int(fields[_UTIME]) + int(fields[_STIME])
    return Use(int(fields[_RESIDENT]) * _PAGE_BYTES, ticks / _TICKS_PER_S)


def use_of_models(
    processes: Iterable[Mapping[str, Any]], proc: Path = PROC
) -> dict[tuple[str, int], Use]:
    """Return the use of the instances of each version together; the rows are the status's."""
    sums: dict[tuple[str, int], Use] = {}
    stubs = [row for row in processes if row["role"] == "stub" and row["pid"]]
    # several may be threads of one process
    for pid, row in {row["pid"]: row for row in stubs}.items():
        use = read_use(pid, proc)
        if use is not None:
            key = row["model"], row["version"]
            before = sums.get(key, Use())
            sums[key] = Use(before.memory_bytes + use.memory_bytes, before.cpu_s + use.cpu_s)
    return sums


def format_bytes(size: float | None) -> str:
    """Return a size for people."""
    if size is None:
        return "-"
    value, unit = float(size), 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.3g} {_UNITS[unit]}"
