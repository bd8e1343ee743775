"""Memory, cores, limits and waits for them, of the machine and of a server's processes.

Reads control groups, too (v1 and v2).
"""

from __future__ import annotations

import math
import os
import re
import resource
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from zmqtriton.diagnosis.facts.readings import ROOT, process_field, read, size
from zmqtriton.diagnosis.rules.causes import judge_pressure
from zmqtriton.findings import Finding
from zmqtriton.host.capacity import core_quota, enclosing_groups
from zmqtriton.host.fitness import lacks
from zmqtriton.options import Options

_MIB = 1 << 20
_LEAST_AVAILABLE = 256 * _MIB
_LEAST_SHARE = 0.05
_NEARLY_ALL = 0.9
_WORTH_REMOVING = _MIB
_MANY_INSTANCES_PER_CORE = 4
#: Names that tritonserver and its Python backend give to their memory.
_OF_TRITON = ("triton_python_backend_shm_region_*", "triton_shm_*")
_MINUTE = re.compile(r"^some .*?avg60=([\d.]+)", re.MULTILINE)
#: Minimum percentage of the last minute with waiting processes that is trouble, and its text, by
#: resource.
_TROUBLE = {
    "cpu": (40.0, "CPU is short"),
    "memory": (10.0, "memory is short"),
    "io": (40.0, "disks are slow or busy"),
}
#: An instance of a model needs five of the supervisor's; see "descriptors" in the supervisor.
_FEW_DESCRIPTORS = 4096
_TOO_FEW_DESCRIPTORS = 256
_NEARLY_USED = 0.8
_FEW_PROCESSES = 1024
_SWAPPED_BYTES = 64 << 20
_RAISE = "Raise LimitNOFILE= in the unit (systemctl edit zmqtriton), or `ulimit -n` of the shell."
#: The name in /proc/PID/limits; the resource, and whether it is the hard limit that counts: the
#: server raises that of descriptors as far as it may.
_LIMITS = {
    "open files": (resource.RLIMIT_NOFILE, 1),
    "processes": (resource.RLIMIT_NPROC, 0),
    "locked memory": (resource.RLIMIT_MEMLOCK, 0),
}


class _Group(NamedTuple):
    limit: int
    #: Bytes in use, without the caches that the kernel can drop.
    used: int
    #: Number of processes that the kernel has killed in the group for its memory.
    kills: int


def judge_memory(pid: int, root: Path = ROOT) -> Iterator[Finding]:
    """Judge the memory that a process can use; `pid` 0 is this process."""
    machine = read(root / "proc/meminfo")
    total = _field(machine, "MemTotal:") << 10
    available = _field(machine, "MemAvailable:") << 10
    if available < max(_LEAST_AVAILABLE, int(_LEAST_SHARE * total)):
        yield Finding.warning(
            f"the machine has {size(available)} of {size(total)} of memory left",
            "The kernel kills processes when no memory is left. Unload models or give them fewer "
            "instances.",
            "zmqtriton-ctl top",
        )
    groups = _read_memory_groups(pid, root)
    # version 1 has no word for "unlimited"
    limited = [group for group in groups if not total or group.limit < total]
    if limited:
        yield from _judge_group(min(limited, key=lambda group: group.limit - group.used))
    if read(root / "proc/sys/vm/overcommit_memory").strip() == "2":
        yield Finding.note(
            "the kernel promises no more memory than it has (vm.overcommit_memory=2)",
            "Instances reserve more than they use, so starts may fail with free memory left.",
            "sysctl vm.overcommit_memory=0",
        )


def _judge_group(group: _Group) -> Iterator[Finding]:
    if group.used > _NEARLY_ALL * group.limit:
        yield Finding.warning(
            f"the control group uses {size(group.used)} of the {size(group.limit)} of "
            "memory that it may have",
            "Raise the container's limit (`docker run --memory`, resources.limits.memory, "
            "MemoryMax=), or unload models.",
            "zmqtriton-ctl top",
        )
    if group.kills:
        times = "once" if group.kills == 1 else f"{group.kills} times"
        yield Finding.warning(
            f"the kernel has killed a process of this control group for want of memory, {times}",
            "Raise the container's limit, or give models a quota (max_memory_bytes) so that one "
            "cannot take all.",
            "zmqtriton-ctl status",
        )


def _read_memory_groups(pid: int, root: Path) -> Iterator[_Group]:
    for group in enclosing_groups("memory", root / "proc", root / "sys/fs/cgroup", pid):
        limit = _number(group, "memory.max", "memory.limit_in_bytes")
        if limit is None:
            continue
        used = _number(group, "memory.current", "memory.usage_in_bytes") or 0
        # files that were read stay in memory until something else needs it
        statistics = read(group / "memory.stat")
        used -= _field(statistics, "total_inactive_file") or _field(statistics, "inactive_file")
        events = read(group / "memory.events") or read(group / "memory.oom_control")
        yield _Group(limit, max(0, used), _field(events, "oom_kill"))


def judge_shared_memory(options: Mapping[str, Any], root: Path = ROOT) -> Iterator[Finding]:
    folder = root / "dev/shm"
    leftovers = sorted(path for pattern in _OF_TRITON for path in folder.glob(pattern))
    left = 0
    for path in leftovers:
        with suppress(OSError):
            left += path.stat().st_blocks * 512
    if left > _WORTH_REMOVING:
        yield Finding.note(
            f"an NVIDIA Triton has left {size(left)} in /dev/shm ({len(leftovers)} files)",
            "Remove them if no tritonserver of NVIDIA runs; zmqtriton leaves none.",
            f"ls -l {leftovers[0]}*",
        )
    if not options.get("allow-client-shm") or not folder.is_dir():
        return
    place = os.statvfs(folder)
    free, total = place.f_bavail * place.f_frsize, place.f_blocks * place.f_frsize
    if free < (1 - _NEARLY_ALL) * total:
        yield Finding.warning(
            f"/dev/shm has {size(free)} of {size(total)} left, and clients may pass tensors there",
            "Remove files that no client uses, or enlarge it: `docker run --shm-size=1g`.",
            "ls -lS /dev/shm",
        )


def judge_cores(pid: int, instances: int, root: Path = ROOT) -> Iterator[Finding]:
    """Judge how many cores a process may use, and how much of their time."""
    try:
        count = len(os.sched_getaffinity(pid))
    except ProcessLookupError:  # it has just ended
        count = len(os.sched_getaffinity(0))
    quota = core_quota(root, pid)
    if quota < count:
        whole = max(1, round(quota))
        yield Finding.warning(
            f"the control group allows the time of {quota:g} of {count} cores",
            "The server and numeric libraries start threads and processes for all cores, which "
            "then wait for each other. Limit them, or pin the container to cores (--cpuset-cpus).",
            f"OMP_NUM_THREADS={whole} zmqtriton --http-workers={whole} --grpc-processes={whole} "
            "...",
        )
    if instances > _MANY_INSTANCES_PER_CORE * count:
        yield Finding.note(
            f"{instances} instances share {count} cores",
            "More instances than cores help only where models wait for something else.",
            "zmqtriton-ctl stats",
        )


def _number(group: Path, *names: str) -> int | None:
    """Return the first number in a group's files of these names; None for none and for "max"."""
    texts = (read(group / name).strip() for name in names)
    return next((int(text) for text in texts if text.isdigit()), None)


def _field(text: str, name: str) -> int:
    match = re.search(rf"^{re.escape(name)}\s+(\d+)", text, re.MULTILINE)
    return int(match[1]) if match else 0


def judge_machine(rows: Sequence[Mapping[str, Any]] | None, root: Path = ROOT) -> Iterator[Finding]:
    """Judge what a server has measured in the last minute, or the kernel where no server has."""
    yield from judge_pressure(_read_rows(root) if rows is None else rows)


def _read_rows(root: Path) -> Iterator[Mapping[str, str]]:
    for name, (least, text) in _TROUBLE.items():
        match = _MINUTE.search(read(root / "proc/pressure" / name))
        if match and float(match[1]) >= least:
            share = f"for {float(match[1]):.0f} % of the last minute a process waited for that"
            yield {"resource": name, "text": f"{text}: {share}"}


def read_limit(name: str, pid: int, root: Path = ROOT) -> float:
    """Return a limit of a process; for pid 0, of a server that this process would start."""
    if not pid:
        number, place = _LIMITS[name]
        limit = resource.getrlimit(number)[place]
        return math.inf if limit == resource.RLIM_INFINITY else limit
    text = read(root / "proc" / str(pid) / "limits")
    match = re.search(rf"^Max {name}\s+(\d+)", text, re.MULTILINE)
    return float(match[1]) if match else math.inf


def judge_stopped(processes: Mapping[int, str], root: Path = ROOT) -> Iterator[Finding]:
    for pid, name in processes.items():
        state = process_field(pid, "State", root)[:1]
        if state in ("T", "t"):
            yield Finding.error(
                f"{name} (pid {pid}) is stopped by a signal or a debugger",
                "It does nothing until it is continued.",
                f"kill -CONT {pid}",
            )
        elif state == "D":
            yield Finding.note(
                f"{name} (pid {pid}) waits for a disk or a driver",
                "If that stays so, a file system or a GPU hangs; the process cannot be killed.",
                f"cat /proc/{pid}/wchan",
            )


def judge_limits(pid: int, processes: Mapping[int, str], root: Path = ROOT) -> Iterator[Finding]:
    """Judge the limits of a server and their use; `pid` is 0 before its start."""
    limit = read_limit("open files", pid, root)
    if limit < _FEW_DESCRIPTORS:
        judge = Finding.error if limit < _TOO_FEW_DESCRIPTORS else Finding.warning
        yield judge(
            f"a process may have {limit:g} file descriptors, which is few",
            f"Each connection, instance and region of shared memory needs some. {_RAISE}",
            "ulimit -n 65536",
        )
    for each, name in processes.items():
        used = 0
        with suppress(OSError):  # another user's process
            used = len(os.listdir(root / "proc" / str(each) / "fd"))
        if used > _NEARLY_USED * limit:
            yield Finding.warning(
                f"{name} (pid {each}) uses {used} of {limit:g} file descriptors",
                f"Beyond the limit it refuses connections and loads. {_RAISE}",
                f"ls -l /proc/{each}/fd",
            )
    is_root = process_field(pid, "Uid", root).startswith("0") if pid else not os.geteuid()
    count = read_limit("processes", pid, root)
    if count < _FEW_PROCESSES and not is_root:  # it does not bind root
        yield Finding.warning(
            f"this user may have {count:g} processes and threads, which is few",
            "Each instance is a process, and numeric libraries have a thread for each core. "
            "Raise LimitNPROC= and TasksMax= in the unit, or `ulimit -u` of the shell.",
            "ulimit -u 16384",
        )


def judge_start(options: Options | None) -> Iterator[Finding]:
    """Judge whether this machine suffices for a server with these options."""
    for lack in lacks(options) if options is not None else ():
        yield (Finding.error if lack.is_fatal else Finding.warning)(
            lack.text, lack.advice, lack.command
        )


def judge_swap(processes: Mapping[int, str], root: Path = ROOT) -> Iterator[Finding]:
    swapped = {name: _swapped_bytes(pid, root) for pid, name in processes.items()}
    total = sum(swapped.values())
    if total > _SWAPPED_BYTES:
        worst = max(swapped, key=lambda name: swapped[name])
        yield Finding.warning(
            f"{size(total)} of the server's memory are in swap, most of {worst}",
            "Requests that touch it wait for the disk. Unload models, or add memory.",
            "zmqtriton-ctl top",
        )


def _swapped_bytes(pid: int, root: Path) -> int:
    words = process_field(pid, "VmSwap", root).split()
    return int(words[0]) * 1024 if words else 0
