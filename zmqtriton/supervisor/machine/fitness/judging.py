"""The lacks of a machine, which the start and the doctor tell in the same words."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from zmqtriton.options import Options
from zmqtriton.supervisor.machine.fitness import file_size, kernel, python_build, task_limits


class Lack(NamedTuple):
    text: str
    advice: str
    #: Shows more of it.
    command: str
    #: The server cannot start; otherwise it starts, and something else may fail.
    is_fatal: bool = True


def lacks(options: Options) -> Iterator[Lack]:
    if not os.path.exists("/proc/self/status"):
        yield Lack("/proc is not mounted", "Mount it: `mount -t proc proc /proc`.", "ls /proc")
    for call in kernel.missing_calls():
        yield Lack(call, kernel.ADVICE, "uname -r")
    problem = python_build.problem()
    if problem:
        yield Lack(problem, python_build.ADVICE, "python3 -VV")
    needed = task_limits.needed(options)
    for limit in task_limits.task_limits():
        if limit.left < needed.usual:
            is_fatal = limit.left < needed.least
            number = needed.least if is_fatal else needed.usual
            yield Lack(
                f"{limit.text}, and {limit.used} are there; the server "
                f"{'needs' if is_fatal else 'may need'} {number} more for itself and one instance",
                "Raise it (`docker run --pids-limit`, TasksMax=, `ulimit -u`), or name "
                "fewer --http-workers and --grpc-processes.",
                "ulimit -u; cat /sys/fs/cgroup/pids.max",
                is_fatal,
            )
    shortage = file_size.shortage()
    if shortage:
        yield Lack(shortage, "Raise it (LimitFSIZE=, `ulimit -f`).", "ulimit -Hf")


def check(options: Options) -> None:
    """Raise OSError, with a text for the server's operator, if none can start here."""
    for lack in lacks(options):
        if lack.is_fatal:
            raise OSError(f"{lack.text}\n  {lack.advice}")
