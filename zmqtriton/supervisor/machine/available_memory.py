"""The memory that the server may count on: what the machine or its control group has left.

Reads /proc and /sys; decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

#: For a machine that reports nothing.
_FALLBACK = 1 << 30


def available_bytes(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the least of what the machine and each enclosing control group have left."""
    return min([_available_on_machine(proc), *_available_in_cgroups(proc, groups)])


def _available_on_machine(proc: Path) -> int:
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _read_text(proc / "meminfo"), re.MULTILINE)
    return int(found[1]) * 1024 if found else _FALLBACK


def _available_in_cgroups(proc: Path, groups: Path) -> Iterator[int]:
    for line in _read_text(proc / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:  # version 2, the only hierarchy without a name
            yield from _remaining_in_cgroup(groups, path, "memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            yield from _remaining_in_cgroup(groups / "memory", path, *names)


def _remaining_in_cgroup(root: Path, path: str, limit: str, current: str) -> Iterator[int]:
    """Return what a group and its ancestors have left.

    A container's own group is mounted as the root.
    """
    group = root / path.lstrip("/")
    while True:
        most, now = _read_text(group / limit).strip(), _read_text(group / current).strip()
        if most.isdigit() and now.isdigit():
            yield max(0, int(most) - int(now))
        if group == root or root not in group.parents:
            return
        group = group.parent


def _read_text(path: Path) -> str:
    """Return the file's content, or "" if there is no such file."""
    try:
        return path.read_text("ascii", "replace")
    except OSError:
        return ""
