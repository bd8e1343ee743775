"""Reads memory, cores and shared memory, of the machine and of control groups (v1 and v2)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from zmqtriton_addons.tools.doctor.facts import Cores, Memory, SharedMemory

_ROOT = Path("/")
#: Names that tritonserver and its Python backend give to their memory.
_OF_TRITON = ("triton_python_backend_shm_region_*", "triton_shm_*")


def read_memory(pid: int = 0, root: Path = _ROOT) -> Memory:
    """Read the memory as a process sees it; 0 is this one."""
    machine = _read(root / "proc/meminfo")
    limit, used = None, 0
    kills = 0
    for group in _groups(pid, root, "memory"):
        most = _number(group, "memory.max", "memory.limit_in_bytes")
        now = _number(group, "memory.current", "memory.usage_in_bytes") or 0
        # files that were read stay in memory until something else needs it
        statistics = _read(group / "memory.stat")
        now -= _field(statistics, "total_inactive_file") or _field(statistics, "inactive_file")
        if most is not None and (limit is None or most - now < limit - used):
            limit, used = most, max(0, now)
            events = _read(group / "memory.events") or _read(group / "memory.oom_control")
            kills = _field(events, "oom_kill")
    total = _field(machine, "MemTotal:") << 10
    # version 1 has no word for "unlimited"
    is_limited = limit is not None and (not total or limit < total)
    return Memory(
        total,
        _field(machine, "MemAvailable:") << 10,
        limit if is_limited else None,
        used if is_limited else 0,
        kills if is_limited else 0,
        int(_read(root / "proc/sys/vm/overcommit_memory").strip() or 0),
    )


def read_cores(instances: int, pid: int = 0, root: Path = _ROOT) -> Cores:
    """Read how many cores a process may use, and how much of their time."""
    quotas = list(_quotas(pid, root))
    try:
        cores = os.sched_getaffinity(pid)
    except ProcessLookupError:  # it has just ended
        cores = os.sched_getaffinity(0)
    return Cores(len(cores), min(quotas, default=None), instances)


def _quotas(pid: int, root: Path) -> Iterator[float]:
    for group in _groups(pid, root, "cpu"):
        words = _read(group / "cpu.max").split()
        if not words:
            words = [_read(group / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
        if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]):
            yield int(words[0]) / int(words[1])


def read_shared_memory(root: Path = _ROOT) -> SharedMemory | None:
    folder = root / "dev/shm"
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    leftovers = sorted(path for pattern in _OF_TRITON for path in folder.glob(pattern))
    size = 0
    for path in leftovers:
        with suppress(OSError):
            size += path.stat().st_blocks * 512
    return SharedMemory(
        found.f_blocks * found.f_frsize,
        found.f_bavail * found.f_frsize,
        tuple(map(str, leftovers)),
        size,
    )


def _groups(pid: int, root: Path, controller: str) -> Iterator[Path]:
    """Yield the control group of a process and those around it."""
    mounts = root / "sys/fs/cgroup"
    for line in _read(root / "proc" / (str(pid) if pid else "self") / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            top = mounts
        elif controller in controllers.split(","):
            top = mounts / controllers if (mounts / controllers).is_dir() else mounts / controller
        else:
            continue
        group = top / path.lstrip("/")
        # a container's own group is mounted as the root
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(top))


def _number(group: Path, *names: str) -> int | None:
    """Return the first of these figures that there is; None for none and for "max"."""
    texts = (_read(group / name).strip() for name in names)
    return next((int(text) for text in texts if text.isdigit()), None)


def _field(text: str, name: str) -> int:
    found = re.search(rf"^{re.escape(name)}\s+(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else 0


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
