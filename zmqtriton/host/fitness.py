"""The shortages of a machine; the start and the doctor report them in the same words.

System calls, the Python's build, the size of files (`ulimit -f`, which the kernel also applies to
shared memory), and limits of processes and threads: of a user, and of control groups. A program
that meets such a limit says `Resource temporarily unavailable` or `can't start new thread`, and a
numeric library may end its process; neither names the limit.
"""

from __future__ import annotations

import mmap
import os
import re
import resource
import signal
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from zmqtriton import file_names
from zmqtriton.host.capacity import enclosing_groups, read_text
from zmqtriton.host.sealed_memory import anonymous_memory
from zmqtriton.options import Options
from zmqtriton.roles import frontend_roles

#: Advice for system calls that an old kernel or a strict container lacks. All are tried before the
#: start, because without one a server would fail later, with an error that names no cause.
KERNEL_ADVICE = (
    "The server needs Linux 5.3 and glibc 2.28 or newer. In a container, the seccomp profile of an "
    "old engine may forbid the call."
)
#: Minimum file size: enough for the progress pages of stubs and a common segment of tensors.
_NEEDED_BYTES = 16 << 20
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
#: Maximum number of threads that OpenBLAS starts.
_MAX_NUMERIC = 64
_SHORTAGE = re.compile(r"pthread_create failed|can't start new thread|fork: (retry|Resource)")


class TaskLimit(NamedTuple):
    #: Name of the limit, and its owner.
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

    #: Number of tasks without which the server cannot start.
    least: int
    #: Number of tasks that also has room for streams, large tensors, and a second instance
    #: during a replacement.
    usual: int


def needed_tasks(options: Options) -> Needed:
    cores = len(os.sched_getaffinity(0))
    roles = Counter(frontend_roles(options))
    frontends = roles["grpc"] + roles["http-arbiter"] * (options.http_workers or max(1, cores // 2))
    variables = (os.environ.get(f"{name}_NUM_THREADS", "") for name in ("OPENBLAS", "OMP"))
    numeric = next((int(text) for text in variables if text.isdecimal()), cores)
    instance = min(max(1, numeric), _MAX_NUMERIC)
    # the fork server has loaded numpy, too
    least = _CORE + roles.total() + frontends - roles["grpc"] + 2 * instance - 1
    return Needed(least, least + _AT_TIMES + _THREADS_OF_FRONTEND * frontends)


def explain_task_limits(root: Path = _ROOT) -> str:
    """Return which limit was met when the kernel refused a process or a thread."""
    limits = sorted(task_limits(root), key=lambda limit: limit.left)
    return limits[0].text if limits else "see kernel.pid_max and kernel.threads-max"


def is_task_shortage(line: str) -> bool:
    """Return True for a program's message that it cannot have another thread or process."""
    return _SHORTAGE.search(line) is not None


def task_limits(root: Path = _ROOT) -> Iterator[TaskLimit]:
    """Return the limits that bind this process."""
    maximum = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if maximum != resource.RLIM_INFINITY and _is_bound(root, read_text(root / "proc/self/status")):
        yield TaskLimit("ulimit -u of the user", maximum, _tasks_of_user(root))
    for group in enclosing_groups("pids", root / "proc", root / "sys/fs/cgroup"):
        texts = [read_text(group / f"pids.{name}").strip() for name in ("max", "current")]
        if all(text.isdecimal() for text in texts):
            yield TaskLimit("pids.max of the control group", *map(int, texts))


def _is_bound(root: Path, status: str) -> bool:
    """Return True if the user's limit binds this process: neither root nor privileged."""
    if read_text(root / "proc/self/uid_map").split() != _WHOLE_MAP:
        return True
    privileges = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    return bool(os.getuid()) and not (privileges is not None and int(privileges[1], 16) & _UNBOUND)


def _tasks_of_user(root: Path) -> int:
    threads = re.compile(rf"^Uid:\t{os.getuid()}\t.*?^Threads:\t(\d+)", re.MULTILINE | re.DOTALL)
    statuses = map(read_text, root.glob("proc/[0-9]*/status"))
    return sum(int(match[1]) for match in map(threads.search, statuses) if match)


def raise_file_size() -> None:
    """Raise the limit of a file's size as far as this user may, for child processes as well."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def file_size_shortage() -> str:
    """Return why no server can start under the limit of a file's size; "" if one can."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    if limit == resource.RLIM_INFINITY or limit >= _NEEDED_BYTES:
        return ""
    return (
        f"ulimit -f allows files of {limit} bytes, which counts for shared memory, too; the server "
        f"needs {_NEEDED_BYTES}, and as many as the largest tensor has"
    )


def missing_calls() -> Iterator[str]:
    """Return a sentence for each system call that is needed and does not work."""
    libc = "an unknown C library"
    with suppress(ValueError, OSError):
        libc = os.confstr("CS_GNU_LIBC_VERSION") or libc
    for name, call in _CALLS.items():
        if call is _make_memory and file_size_shortage():
            continue  # another finding, of which the call would be a consequence
        try:
            call()
        except (OSError, AttributeError) as failure:
            reason = getattr(failure, "strerror", None) or str(failure)
            yield f"{name}() does not work here: {reason} (kernel {os.uname().release}, {libc})"
            if name == "prlimit64":
                return  # the others look at limits


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
    raise_file_size()  # the start does, too
    os.close(anonymous_memory(mmap.PAGESIZE))


#: Checks by the name of the system call.
_CALLS: dict[str, Callable[[], object]] = {
    "prlimit64": lambda: resource.getrlimit(resource.RLIMIT_NOFILE),
    "pidfd_open": lambda: os.close(os.pidfd_open(os.getpid())),
    "pidfd_send_signal": _signal_pidfd,
    "memfd_create": _make_memory,
    "eventfd": lambda: os.close(os.eventfd(0)),
}


PYTHON_ADVICE = (
    "gRPC and orjson, which the server needs, have no packages for it; install the server with the "
    "usual build. Models may name this one (PYTHON_EXECUTABLE, EXECUTION_ENV_PATH)."
)


def python_problem() -> str:
    """Return a sentence if the server cannot run on this build of Python; else ""."""
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
    calls = [*missing_calls()]
    yield from (Lack(call, KERNEL_ADVICE, "uname -r") for call in calls)
    if calls:
        return  # what follows may need them
    if problem := python_problem():
        yield Lack(problem, PYTHON_ADVICE, "python3 -VV")
    needed = needed_tasks(options)
    for limit in task_limits():
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
    if not file_names.is_utf8():
        yield Lack(
            f"texts and names of files are encoded as {sys.getfilesystemencoding()} here, not as "
            "UTF-8",
            "Models of other names than ASCII are served under garbled ones, and models that read "
            "or print other letters may fail.",
            "unset PYTHONUTF8; export LC_ALL=C.UTF-8",
            is_fatal=False,
        )
    if shortage := file_size_shortage():
        yield Lack(shortage, "Raise it (LimitFSIZE=, `ulimit -f`).", "ulimit -Hf")


def check(options: Options) -> None:
    """Raise OSError, with a text for the server's operator, if a server cannot start here."""
    for lack in lacks(options):
        if lack.is_fatal:
            raise OSError(f"{lack.text}\n  {lack.advice}")
