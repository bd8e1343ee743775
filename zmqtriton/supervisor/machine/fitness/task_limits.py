"""Limits of processes and threads: of a user, and of control groups.

Whatever meets such a limit says `Resource temporarily unavailable` or `can't start new thread`, and
a numeric library may end its process; none of them names the limit.
"""

from __future__ import annotations

import os
import re
import resource
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from zmqtriton.options import Options
from zmqtriton.supervisor.machine.policy_reading import read_policy

_ROOT = Path("/")
#: CAP_SYS_ADMIN and CAP_SYS_RESOURCE, which a user's limit does not bind.
_UNBOUND = 1 << 21 | 1 << 24
#: The user namespace of the machine itself.
_WHOLE_MAP = ["0", "0", "4294967295"]
#: The fork server, with a fork that is there for a moment, and the broker.
_CORE = 3
#: A thread of the supervisor's, libzmq's two of an instance that streams, and its replacement.
_AT_TIMES = 4
#: One for what would hold up its clients, and libzmq's two for streams.
_THREADS_OF_FRONTEND = 3
#: As many OpenBLAS starts at most.
_MAX_NUMERIC = 64
_SHORTAGE = re.compile(r"pthread_create failed|can't start new thread|fork: (retry|Resource)")


class TaskLimit(NamedTuple):
    #: What it is called, and whose it is.
    name: str
    maximum: int
    used: int

    @property
    def left(self) -> int:
        return self.maximum - self.used

    @property
    def text(self) -> str:
        return f"{self.name} allows {self.maximum} processes and threads"


class Needed(NamedTuple):
    """The processes and threads of a server, without itself, and of one instance."""

    #: Without these it cannot start.
    least: int
    #: With streams, large tensors, and the replacement of the instance.
    usual: int


def needed(options: Options) -> Needed:
    cores = len(os.sched_getaffinity(0))
    roles = Counter(read_policy(options).frontend_roles)
    frontends = roles["grpc"] + roles["http-arbiter"] * (options.http_workers or max(1, cores // 2))
    variables = (os.environ.get(f"{name}_NUM_THREADS", "") for name in ("OPENBLAS", "OMP"))
    numeric = next((int(text) for text in variables if text.isdecimal()), cores)
    instance = min(max(1, numeric), _MAX_NUMERIC)
    # the fork server has loaded numpy, too
    least = _CORE + roles.total() + frontends - roles["grpc"] + 2 * instance - 1
    return Needed(least, least + _AT_TIMES + _THREADS_OF_FRONTEND * frontends)


def explain(root: Path = _ROOT) -> str:
    """Return which limit was met when the kernel refused a process or a thread."""
    limits = sorted(task_limits(root), key=lambda limit: limit.left)
    return limits[0].text if limits else "see kernel.pid_max and kernel.threads-max"


def is_shortage(line: str) -> bool:
    """Return True for a line in which a program says that it cannot have a thread or a process."""
    return _SHORTAGE.search(line) is not None


def task_limits(root: Path = _ROOT) -> Iterator[TaskLimit]:
    """Return the limits that bind this process."""
    maximum = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    status = _read(root / "proc/self/status")
    if maximum != resource.RLIM_INFINITY and _is_bound(root, status):
        yield TaskLimit("ulimit -u of the user", maximum, _tasks_of_user(root))
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        top = root / "sys/fs/cgroup"
        if controllers and "pids" not in controllers.split(","):
            continue
        top = top / "pids" if controllers else top
        group = top / path.lstrip("/")
        # a container's own group is mounted as the root
        for folder in (group, *group.parents):
            texts = [_read(folder / f"pids.{name}").strip() for name in ("max", "current")]
            if all(text.isdecimal() for text in texts):
                yield TaskLimit("pids.max of the control group", *map(int, texts))
            if folder == top:
                break


def _is_bound(root: Path, status: str) -> bool:
    """Return True if the user's limit binds this process: neither root nor privileged."""
    if _read(root / "proc/self/uid_map").split() != _WHOLE_MAP:
        return True
    privileges = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    is_privileged = privileges is not None and int(privileges[1], 16) & _UNBOUND
    return bool(os.getuid()) and not is_privileged


def _tasks_of_user(root: Path) -> int:
    total = 0
    threads = re.compile(rf"^Uid:\t{os.getuid()}\t.*?^Threads:\t(\d+)", re.MULTILINE | re.DOTALL)
    for path in root.glob("proc/[0-9]*/status"):
        match = threads.search(_read(path))
        total += int(match[1]) if match else 0
    return total


def _read(path: Path) -> str:
    """Return the file's content, or "" if there is no such file."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
