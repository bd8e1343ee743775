"""Starts, signals and reaps children; nothing else in the project uses Popen.

A child gets its own process group, the named descriptors, and nothing else of the supervisor's.
When the supervisor dies, the kernel kills all children but those that then have work to do. A pidfd
shows a child's death.
"""

from __future__ import annotations

import ctypes
import logging
import os
import resource
import selectors
import signal
import subprocess
import time
import warnings
from collections.abc import Callable, Container, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path

from zmqtriton.environments.users import StubUser
from zmqtriton.host import fitness
from zmqtriton.host.capacity import process_stat, read_text, restore_descriptor_limit
from zmqtriton.systemd import SERVICE_VARIABLES
from zmqtriton_floor import prctl, stub_mark
from zmqtriton_floor.lifeline import Lifeline, pair
from zmqtriton_floor.reasons import Kind, Reason

_LIBC = ctypes.CDLL(None)
#: Whom the kernel should choose first when memory runs out: what is replaced most cheaply.
STUB_OOM_SCORE = 500
_OOM_SCORES = {"fork-server": 400, "broker": 100}
_OTHER_OOM_SCORE = 200


def oom_score_of(role: str) -> int:
    """Return the score of a process of the server; the supervisor keeps its own."""
    return _OOM_SCORES.get(role, _OTHER_OOM_SCORE)


def reap_orphans(children: Container[int]) -> None:
    """Reap zombies up to the first one in `children`, the pids that a ChildProcess reaps."""
    while True:
        try:
            dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if dead is None or dead.si_pid in children:
            return
        os.waitpid(dead.si_pid, os.WNOHANG)


def kill_strays(
    directory: str, children: AbstractSet[int], may_live: Callable[[int], bool]
) -> None:
    """Kill adopted processes that dead stubs have left, and their descendants.

    `children` has the pids of children with a lifeline, and `may_live` returns whether the stub
    with a serial number may be alive.
    """
    for pid in set(_child_pids()) - children:
        mark = stub_mark.read(pid)
        if mark is None or mark[0] != directory or may_live(mark[1]):
            continue
        import psutil  # only now: most servers have no such process

        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            for process in psutil.Process(pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            os.kill(pid, signal.SIGKILL)


def kill_orphans(within_s: float, but: AbstractSet[int]) -> None:
    """Kill the orphans that are left when no child has a Process any more.

    Orphans that cannot be killed in this time, since they wait for a disk, are left to the kernel.
    """
    deadline_s = time.monotonic() + within_s
    left = set(but)
    while time.monotonic() < deadline_s and (orphans := set(_child_pids()) - left):
        for pid in orphans:
            os.kill(pid, signal.SIGKILL)
        for pid in orphans:
            descriptor = os.pidfd_open(pid)
            if not await_ends([descriptor], max(0.0, deadline_s - time.monotonic())):
                os.waitpid(pid, 0)
            else:
                left.add(pid)
            os.close(descriptor)


def await_ends(pidfds: Sequence[int], within_s: float) -> list[int]:
    """Wait for the end of processes; return the processes that still run at the time limit."""
    deadline_s = time.monotonic() + within_s
    with selectors.DefaultSelector() as living:
        for pidfd in pidfds:
            living.register(pidfd, selectors.EVENT_READ)
        while living.get_map():
            dead = living.select(max(0.0, deadline_s - time.monotonic()))
            for key, _ in dead:
                living.unregister(key.fd)
            if not dead and time.monotonic() >= deadline_s:
                break
        return [key.fd for key in living.get_map().values()]


def _child_pids() -> list[int]:
    # not every kernel has this file
    return [int(pid) for pid in read_text(Path("/proc/thread-self/children")).split()]


class ChildProcess:
    """A child from its start until it is reaped."""

    def __init__(self, pid: int, wait: Callable[[], int]) -> None:
        """Open the process, which `wait` reaps. Raises OSError if it does not exist."""
        self.pid = pid
        self._reap_child = wait
        self._is_reaped = False
        #: Readable once it is dead.
        self.pidfd = os.pidfd_open(pid)

    @classmethod
    def from_orphan(cls, pid: int) -> ChildProcess:
        """Open a process that the fork server has forked.

        It is an orphan that this process has adopted, so only this process reaps it.
        """
        return cls(pid, lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    def signal(self, number: int, group: bool, thread: str = "") -> None:
        """Send a signal to a living process; with `thread`, to its thread of this name, if any.

        Before the process is reaped, no other process can have its pid.
        """
        if self._is_reaped:
            return
        taker = find_thread(self.pid, thread) if thread else 0
        if taker and signal_thread(self.pid, taker, number):
            return
        try:
            if group:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)
        except ProcessLookupError:
            pass  # dead, and the news of it is on its way
        except PermissionError:
            # Its group has a process of another user; the leader alone may still be in reach.
            signal.pidfd_send_signal(self.pidfd, number)

    def reap(self) -> Reason:
        """Reap a dead process and kill the rest of its group; return the reason of its end."""
        self.signal(signal.SIGKILL, group=True)
        status = self._reap_child()
        self._is_reaped = True
        os.close(self.pidfd)
        return describe_exit_status(status)


def signal_thread(pid: int, thread: int, number: int = signal.SIGABRT) -> bool:
    """Send a signal to one thread of a process, as far as this C library can."""
    tgkill = getattr(_LIBC, "tgkill", None)
    return tgkill is not None and not tgkill(pid, thread, number)


def find_thread(pid: int, name: str) -> int:
    """Return the thread of a process with this name, the oldest of several; 0 without one."""
    with suppress(OSError):  # the process has ended, or belongs to another user
        for thread in sorted(map(int, os.listdir(f"/proc/{pid}/task"))):
            if Path(f"/proc/{pid}/task/{thread}/comm").read_bytes() == f"{name}\n".encode():
                return thread
    return 0


#: A process sends these to itself, when its native code fails.
_CRASHES = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})


def not_started(error: Exception) -> Reason:
    """Return the reason why a process could not be started."""
    text = f"it cannot be started: {error}"
    if isinstance(error, BlockingIOError):  # EAGAIN, which is said of processes, too
        text += f"; {fitness.explain_task_limits()}"
    return Reason.of(Kind.NOT_STARTED, text)


def ended(text: str) -> Reason:
    """Return the reason why a process is gone, if its exit status is unknown."""
    return Reason.of(Kind.OTHER, text)


def describe_exit_status(status: int) -> Reason:
    """Return `killed by SIGKILL` or `exited with status 1`."""
    if status >= 0:
        return Reason.of(Kind.EXITED, f"exited with status {status}", status=status)
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return Reason.of(
        Kind.CRASHED if -status in _CRASHES else Kind.KILLED, f"killed by {name}", signal=name
    )


def spawn(
    command: Sequence[str],
    *,
    descriptors: Sequence[int],
    output: int | None = None,
    environment: Mapping[str, str | None] | None = None,
    is_stub: bool = False,
    oom_score: int = STUB_OOM_SCORE,
    dies_with_parent: bool = True,
    keeps_privileges: bool = False,
    user: StubUser | None = None,
) -> ChildProcess:
    """Start a program. Raises OSError if it cannot be run.

    `output` takes its stdout and stderr; `environment` overrides the server's own, where None
    removes a variable. The program runs as `user`, with that user's variables.
    """
    parent = os.getpid()
    max_core = resource.getrlimit(resource.RLIMIT_CORE)[1]

    def prepare() -> None:
        # A process group, to be killed with what it starts; not a session, which the kernel would
        # schedule as a group of its own, so that each message between two processes would wait for
        # its turn.
        os.setpgid(0, 0)
        if not keeps_privileges:
            prctl.renounce_privileges()
        if user is not None:
            _write_oom_score("self", oom_score)
            user.become()
        if dies_with_parent:
            prctl.die_with(parent)
        if is_stub:
            restore_descriptor_limit()
            # A model that crashes in a loop would fill the disk. What it may raise that to stays:
            # nobody can raise that.
            resource.setrlimit(resource.RLIMIT_CORE, (0, max_core))

    of_user = user.variables if user is not None else {}
    variables = {**os.environ, **dict.fromkeys(SERVICE_VARIABLES), **of_user, **(environment or {})}
    popen = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=descriptors,
        env={name: value for name, value in variables.items() if value is not None},
        preexec_fn=prepare,
    )
    try:
        if user is None:
            _write_oom_score(str(popen.pid), oom_score)
        return ChildProcess(popen.pid, popen.wait)
    except OSError:
        popen.kill()
        popen.wait()
        raise


def start_copy(name: str, run: Callable[[Lifeline], None]) -> tuple[ChildProcess, Lifeline]:
    """Start a copy of this process that does nothing but `run`. Raises OSError.

    The copy has this process's memory, but not its descriptors, so that a copy that cannot be
    killed keeps no socket open. It cannot control other processes. Threads of this process may have
    held locks at the fork, so `run` uses only objects of the main thread, and logs nothing.
    """
    parent = os.getpid()
    ours, theirs = pair()
    with warnings.catch_warnings():
        # Python warns where there are other threads
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
    if not pid:
        status = 1
        try:
            _become_copy(name, parent, theirs.fileno())
            run(Lifeline(theirs))
            status = 0
        finally:
            os._exit(status)
    theirs.close()
    try:
        return ChildProcess.from_orphan(pid), Lifeline(ours)
    except OSError:
        ours.close()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def _become_copy(name: str, parent: int, kept: int) -> None:
    """Give up all resources of the parent, except one descriptor."""
    prctl.die_with(parent)
    prctl.give_up_privileges()
    os.setpgid(0, 0)
    logging.disable()
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.closerange(3, kept)
    os.closerange(kept + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    prctl.set_name(name)
    prctl.CommandLine().show([name])
    _write_oom_score("self", _OTHER_OOM_SCORE)


def _write_oom_score(pid: str, score: int) -> None:
    """Set how much sooner than the supervisor the kernel may kill it for lack of memory."""
    with suppress(OSError):  # if this is forbidden, the kernel's own choice stands
        Path(f"/proc/{pid}/oom_score_adj").write_text(str(score))


def take_stopped_children() -> set[int]:
    """Return the children that were stopped by a signal since the last call."""
    stopped = set[int]()
    with suppress(ChildProcessError):
        while (state := os.waitid(os.P_ALL, 0, os.WSTOPPED | os.WNOHANG)) is not None:
            stopped.add(state.si_pid)
    return stopped


def is_frozen(pid: int) -> bool:
    """True if the process was stopped by a signal or a tracer."""
    return process_stat(pid)[:1] in ([b"T"], [b"t"])
