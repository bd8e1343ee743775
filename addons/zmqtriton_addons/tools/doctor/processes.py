"""The processes of a server, and their limits."""

from __future__ import annotations

import math
import os
import re
import resource
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from zmqtriton.findings import Finding, error, note, warning
from zmqtriton.options import Options
from zmqtriton.supervisor import lacks
from zmqtriton_addons.tools.doctor.reading import ROOT, process_field, read, size

#: An instance of a model needs five of the supervisor's; see "descriptors" in the supervisor.
_FEW_DESCRIPTORS = 4096
_TOO_FEW_DESCRIPTORS = 256
_NEARLY_ALL = 0.8
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


def read_limit(name: str, pid: int, root: Path = ROOT) -> float:
    """Return a limit of a process; of a server that this process would start, for 0."""
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
            yield error(
                f"{name} (pid {pid}) is stopped by a signal or a debugger",
                "It does nothing until it is continued.",
                f"kill -CONT {pid}",
            )
        elif state == "D":
            yield note(
                f"{name} (pid {pid}) waits for a disk or a driver",
                "If that stays so, a file system or a GPU hangs; the process cannot be killed.",
                f"cat /proc/{pid}/wchan",
            )


def judge_limits(pid: int, processes: Mapping[int, str], root: Path = ROOT) -> Iterator[Finding]:
    """Judge the limits of a server, and the use of them; `pid` is 0 if it is to be started."""
    limit = read_limit("open files", pid, root)
    if limit < _FEW_DESCRIPTORS:
        judge = error if limit < _TOO_FEW_DESCRIPTORS else warning
        yield judge(
            f"a process may have {limit:g} file descriptors, which is few",
            f"Each connection, instance and region of shared memory needs some. {_RAISE}",
            "ulimit -n 65536",
        )
    for each, name in processes.items():
        used = 0
        with suppress(OSError):  # another user's process
            used = len(os.listdir(root / "proc" / str(each) / "fd"))
        if used > _NEARLY_ALL * limit:
            yield warning(
                f"{name} (pid {each}) uses {used} of {limit:g} file descriptors",
                f"Beyond the limit it refuses connections and loads. {_RAISE}",
                f"ls -l /proc/{each}/fd",
            )
    is_root = process_field(pid, "Uid", root).startswith("0") if pid else not os.geteuid()
    count = read_limit("processes", pid, root)
    if count < _FEW_PROCESSES and not is_root:  # it does not bind root
        yield warning(
            f"this user may have {count:g} processes and threads, which is few",
            "Each instance is a process, and numeric libraries have a thread for each core. "
            "Raise LimitNPROC= and TasksMax= in the unit, or `ulimit -u` of the shell.",
            "ulimit -u 16384",
        )


def judge_start(options: Options | None) -> Iterator[Finding]:
    """Judge whether this machine has what a server needs that is started with these options."""
    for lack in lacks(options) if options is not None else ():
        judge = error if lack.is_fatal else warning
        yield judge(lack.text, lack.advice, lack.command)


def judge_swap(processes: Mapping[int, str], root: Path = ROOT) -> Iterator[Finding]:
    swapped = {name: _swapped_bytes(pid, root) for pid, name in processes.items()}
    total = sum(swapped.values())
    if total > _SWAPPED_BYTES:
        worst = max(swapped, key=lambda name: swapped[name])
        yield warning(
            f"{size(total)} of the server's memory are in swap, most of {worst}",
            "Requests that touch it wait for the disk. Unload models, or add memory.",
            "zmqtriton-ctl top",
        )


def _swapped_bytes(pid: int, root: Path) -> int:
    words = process_field(pid, "VmSwap", root).split()
    return int(words[0]) * 1024 if words else 0
