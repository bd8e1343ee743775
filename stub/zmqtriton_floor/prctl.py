"""Kernel settings of this process: name in `ps`, death signal, privileges and command line."""

from __future__ import annotations

import atexit
import errno
import os
import signal
import sys
import threading
from functools import lru_cache
from typing import Callable, Mapping, NoReturn, Sequence

try:
    import ctypes
except ImportError as error:
    raise ImportError(
        f"{sys.executable} has no ctypes ({error}): build this Python again where libffi's headers "
        "are installed (libffi-dev, libffi-devel)"
    ) from error

_SET_PDEATHSIG = 1
_SET_DUMPABLE = 4
_SET_NAME = 15
_SET_TIMER_SLACK = 29
_SET_MM = 35
_SET_MM_MAP = 14
_SET_CHILD_SUBREAPER = 36
_SET_NO_NEW_PRIVS = 38
#: The name of the thread of an instance that takes signals in place of the model's threads.
SIGNAL_THREAD = "signals"
#: The signal at which an instance writes its stacks to its output.
STACKS_SIGNAL = signal.SIGURG
#: The signal for that thread to read the supervisor's messages, as the main one may be busy. A
#: process without the thread ignores it.
READ_SIGNAL = signal.SIGWINCH
#: Bytes that the kernel keeps of the name of a process.
_NAME_BYTES = 15
_CAP_AMBIENT = 47
_CAP_AMBIENT_LOWER = 3
_CAP_VERSION = 0x20080522
#: Numbers of the capabilities that a supervisor without root needs to run models as another user:
#: CAP_CHOWN, CAP_KILL, CAP_SETGID, CAP_SETUID, CAP_SYS_PTRACE and CAP_SYS_NICE.
_PRIVILEGES = (0, 5, 6, 7, 19, 23)
# Loaded now: between fork and exec there should be little left to do.
_LIBC = ctypes.CDLL(None)
_SBRK = _LIBC.sbrk
_SBRK.restype = ctypes.c_void_p
_SBRK.argtypes = (ctypes.c_ssize_t,)


def set_name(name: str) -> None:
    """Set the name that `ps` shows, cut at a letter; the kernel would cut within one."""
    _LIBC.prctl(_SET_NAME, name.encode()[:_NAME_BYTES].decode(errors="ignore").encode(), 0, 0, 0)


def wake_in_time() -> None:
    """Let the kernel end this thread's waits on time, instead of up to 50 µs late."""
    _LIBC.prctl(_SET_TIMER_SLACK, 1, 0, 0, 0)


def hide_memory() -> None:
    """Hide the memory of this process, which has keys in it, from others of the same user.

    Lasts until another program is executed; forks inherit it. The process also writes no core file.
    """
    _LIBC.prctl(_SET_DUMPABLE, 0, 0, 0, 0)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    _LIBC.prctl(_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def die_with(parent: int) -> None:
    """Die when the parent ends; exit now if it has ended before this call."""
    die_with_parent()
    if os.getppid() != parent:
        os._exit(1)


def renounce_privileges() -> None:
    """Keep the supervisor's privileges over other users from this process's next program."""
    for number in _PRIVILEGES:
        _LIBC.prctl(_CAP_AMBIENT, _CAP_AMBIENT_LOWER, number, 0, 0)


def give_up_privileges() -> None:
    """Drop privileges of this process itself for good, except rights on files. Raises OSError."""
    renounce_privileges()
    header, rights = (ctypes.c_uint32 * 2)(_CAP_VERSION, 0), (ctypes.c_uint32 * 6)()
    lost = sum(1 << number for number in _PRIVILEGES)
    if not _LIBC.capget(header, rights):
        for kind in range(3):  # effective, permitted, inheritable
            rights[kind] &= ~lost
        if not _LIBC.capset(header, rights):
            return
    raise PermissionError(errno.EPERM, "capabilities cannot be given up")


def become_user(
    uid: int, gid: int, groups: Sequence[int], variables: Mapping[str, str | None]
) -> None:
    """Change to a user for good: no program that is executed later gets its rights back.

    Sets the user's variables; None removes one. Afterwards the death of the parent no longer ends
    this process: call die_with() again. Raises OSError.
    """
    set_variables(variables)
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    renounce_privileges()
    # a user that was not root keeps its capabilities
    if _LIBC.capset((ctypes.c_uint32 * 2)(_CAP_VERSION, 0), (ctypes.c_uint32 * 6)()):
        raise PermissionError(errno.EPERM, "capabilities cannot be given up")
    _LIBC.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    # whoever changes its user is hidden, also from itself: /proc/self would be another's
    _LIBC.prctl(_SET_DUMPABLE, 1, 0, 0, 0)


def set_variables(variables: Mapping[str, str | None]) -> None:
    """Set variables of this process's environment; None removes one."""
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def flush_output() -> None:
    """Flush stdout and stderr, as far as the process has them."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()


def run_program(main: Callable[[], int | None]) -> NoReturn:
    """Call a main function, and end the process with its status, or as its SystemExit says."""
    try:
        code = main()
    except SystemExit as ended:
        if not isinstance(ended.code, (int, type(None))):
            raise  # a text, which Python prints
        code = ended.code
    end(code or 0)


def end(status: int) -> NoReturn:
    """End the process as Python does, without its destructors: threads, exit functions, streams.

    Python would take apart all that was imported, object by object: a tenth of the whole work of
    a server that starts and stops. The kernel takes the memory back at once.
    """
    threading._shutdown()  # type: ignore[attr-defined] # waits for all but daemons
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            sys.exit(status)  # Python says what it always says of such a stream
    os._exit(status & 0xFF)


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants in place of init, and so reap them."""
    _LIBC.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class CommandLine:
    """The memory that /proc/PID/cmdline shows; its length is fixed at the start of the process.

    A fork has its parent's, until it shows its own.
    """

    def __init__(self) -> None:
        self._start, self._end = layout().arg_start, layout().arg_end

    def show(self, arguments: Sequence[str]) -> None:
        """Replace the command line that `ps` shows, cut to the length of the first one.

        Only while the process has one thread: the end of the heap is set along with it.
        """
        room = self._end - self._start
        text = b"".join(os.fsencode(argument) + b"\0" for argument in arguments)[: room - 1]
        ctypes.memset(self._start, 0, room)
        ctypes.memmove(self._start, text, len(text))
        shown = layout()
        shown.arg_start, shown.arg_end = self._start, self._start + len(text)
        shown.brk = _SBRK(0)
        # if this is refused, there are some NULs more
        _LIBC.prctl(_SET_MM, _SET_MM_MAP, ctypes.byref(shown), ctypes.sizeof(shown), 0)


class _Layout(ctypes.Structure):
    """struct prctl_mm_map: all of it must be given, to change any of it."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("start_code", "end_code", "start_data", "end_data")),
        *((name, ctypes.c_uint64) for name in ("start_brk", "brk", "start_stack")),
        *((name, ctypes.c_uint64) for name in ("arg_start", "arg_end", "env_start", "env_end")),
        ("auxv", ctypes.c_uint64),
        ("auxv_size", ctypes.c_uint32),
        ("exe_fd", ctypes.c_uint32),
    ]


@lru_cache(maxsize=None)
def layout() -> _Layout:
    """Return the layout but for the end of the heap; forks of this process have the same."""
    with open("/proc/self/stat", "rb") as file:
        # counted as in proc(5), where the name in parentheses, which may hold anything, is 2
        words = [b"", b"", b"", *file.read().rpartition(b")")[2].split()]
    fields = _Layout(exe_fd=0xFFFFFFFF)
    fields.start_code, fields.end_code, fields.start_stack = map(int, words[26:29])
    fields.start_data, fields.end_data, fields.start_brk = map(int, words[45:48])
    fields.arg_start, fields.arg_end = map(int, words[48:50])
    fields.env_start, fields.env_end = map(int, words[50:52])
    return fields
