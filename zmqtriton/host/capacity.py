"""The memory, processors and descriptors that the server may count on, and their use by processes.

Reads /proc and /sys; decides nothing.
"""

from __future__ import annotations

import math
import os
import re
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

#: Memory that is assumed on a machine that reports none.
_FALLBACK = 1 << 30
#: The limit of a control group and the use of it, in version 2 and 1.
_MEMORY_FILES = (
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)
#: The share of the memory available at start, and of descriptors, that may become segments.
_SEGMENT_SHARE = 1 / 4
#: Processes that may compute at once, per core: more than one, since some wait for a disk.
_PROCESSES_PER_CORE = 2
#: The descriptors that the supervisor holds for an instance: lifeline, pidfd, output, progress
#: page, readiness lifeline. The broker holds fewer.
_PER_INSTANCE = 5
#: Descriptors for listeners, frontends, callers on the control socket, files that are read, and the
#: pages of the stubs that died last.
_RESERVED = 96
#: The limits of the process as it was started; models' processes get them back, since a program
#: that uses select() cannot have more than 1,024.
_inherited: tuple[int, int] | None = None


class ProcessorUse(NamedTuple):
    """The time that a process has had of the processors, and whether it wants more."""

    ticks: int = 0
    is_runnable: bool = False


def available_bytes(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the memory that is left: the least of the machine and the enclosing control groups."""
    return min([_available_on_machine(proc), *_available_in_cgroups(proc, groups)])


def segment_budget_bytes() -> int:
    """Return the memory that the segments of all processes may take together."""
    return int(available_bytes() * _SEGMENT_SHARE)


def _available_on_machine(proc: Path) -> int:
    match = re.search(r"^MemAvailable:\s+(\d+) kB", read_text(proc / "meminfo"), re.MULTILINE)
    return int(match[1]) * 1024 if match else _FALLBACK


def _available_in_cgroups(proc: Path, groups: Path) -> Iterator[int]:
    for group in enclosing_groups("memory", proc, groups):
        for limit, current in _MEMORY_FILES:
            bound, now = read_text(group / limit).strip(), read_text(group / current).strip()
            if bound.isdigit() and now.isdigit():
                yield max(0, int(bound) - int(now))


def enclosing_groups(
    controller: str,
    proc: Path = Path("/proc"),
    groups: Path = Path("/sys/fs/cgroup"),
    pid: int = 0,
) -> Iterator[Path]:
    """Yield the control group of a process and those around it; 0 is this process."""
    for line in read_text(proc / (str(pid) if pid else "self") / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:  # version 2, the only hierarchy without a name
            top = groups
        elif controller in controllers.split(","):
            top = groups / (controllers if (groups / controllers).is_dir() else controller)
        else:
            continue
        group = top / path.lstrip("/")
        # a container's own group is mounted as the root
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(top))


def core_quota(root: Path = Path("/"), pid: int = 0) -> float:
    """Return the cores' time that the enclosing control groups allow; infinity without a limit."""
    least = math.inf
    for group in enclosing_groups("cpu", root / "proc", root / "sys/fs/cgroup", pid):
        words = read_text(group / "cpu.max").split()
        if not words:
            words = [read_text(group / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
        if len(words) == 2 and all(word.strip().isdigit() for word in words) and int(words[1]):
            least = min(least, int(words[0]) / int(words[1]))
    return least


def read_text(path: Path) -> str:
    """Return the file's content, or "" if there is no such file."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def max_computing() -> int:
    """Return the number of processes that can compute at once without slowing each other down."""
    return _PROCESSES_PER_CORE * len(os.sched_getaffinity(0))


def processor_use(pid: int) -> ProcessorUse:
    """Return the processors' use by a process; nothing for a process that has ended."""
    fields = process_stat(pid)
    return (
        ProcessorUse(int(fields[11]) + int(fields[12]), fields[0] == b"R")
        if fields
        else ProcessorUse()
    )


def process_stat(pid: int) -> list[bytes]:
    """Return the kernel's fields about a process, from its state on; [] once it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read(4096).rpartition(b")")[2].split()
    except OSError:
        return []


def raise_descriptor_limit() -> None:
    """Raise the limit on descriptors as far as this user may: a server needs no such protection."""
    global _inherited
    _inherited = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def restore_descriptor_limit() -> None:
    """Restore the limit that the server was started with; to be called in a child."""
    if _inherited is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, _inherited)


def descriptor_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def max_segments(descriptors: int) -> int:
    return max(0, int((descriptors - _RESERVED) * _SEGMENT_SHARE))


def max_instances(descriptors: int) -> int:
    return max(0, descriptors - _RESERVED - max_segments(descriptors)) // _PER_INSTANCE
