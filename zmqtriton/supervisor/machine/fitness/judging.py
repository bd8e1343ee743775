"""The lacks of a machine, which the start and the doctor tell in the same words."""

from __future__ import annotations

import mmap
import os
import resource
import signal
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from zmqtriton.options import Options
from zmqtriton.supervisor.machine.fitness import file_size, task_limits
from zmqtriton.supervisor.machine.segments import anonymous_memory

#: For system calls that an old kernel or a strict container lacks. They are tried before the start:
#: without one a server would fail somewhere on its way, with an error that names no cause.
KERNEL_ADVICE = (
    "The server needs Linux 5.3 and glibc 2.28 or newer. In a container, the seccomp profile of an "
    "old engine may forbid the call."
)


def missing_calls() -> Iterator[str]:
    """Return a sentence for each call that does not work."""
    libc = "an unknown C library"
    with suppress(ValueError, OSError):
        libc = os.confstr("CS_GNU_LIBC_VERSION") or libc
    for name, call in _CALLS.items():
        try:
            call()
        except (OSError, AttributeError) as failure:
            reason = getattr(failure, "strerror", None) or str(failure)
            kernel = os.uname().release
            yield f"{name}() does not work here: {reason} (kernel {kernel}, {libc})"


def _open_pidfd() -> None:
    os.close(os.pidfd_open(os.getpid()))


def _signal_pidfd() -> None:
    try:
        descriptor = os.pidfd_open(os.getpid())
    except (OSError, AttributeError):
        return  # the finding before this one
    try:
        signal.pidfd_send_signal(descriptor, 0)
    finally:
        os.close(descriptor)


def _make_memory() -> None:
    os.close(anonymous_memory(mmap.PAGESIZE))


#: By the name of the system call.
_CALLS: dict[str, Callable[[], object]] = {
    "pidfd_open": _open_pidfd,
    "pidfd_send_signal": _signal_pidfd,
    "memfd_create": _make_memory,
    "prlimit64": lambda: resource.getrlimit(resource.RLIMIT_NOFILE),
}


PYTHON_ADVICE = (
    "gRPC and orjson, which the server needs, have no packages for it; install the server with the "
    "usual build. Models may name this one (PYTHON_EXECUTABLE, EXECUTION_ENV_PATH)."
)


def python_problem() -> str:
    """Return a sentence if the server's Python is a build that it does not run on."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return f"{sys.executable} is a free-threaded build of Python, which is not supported"
    return ""


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
    for call in missing_calls():
        yield Lack(call, KERNEL_ADVICE, "uname -r")
    problem = python_problem()
    if problem:
        yield Lack(problem, PYTHON_ADVICE, "python3 -VV")
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
