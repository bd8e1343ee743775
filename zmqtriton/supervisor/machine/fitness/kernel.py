"""The system calls that no old kernel and no strict container has, tried before the start.

A server that lacks one would fail somewhere on its way, with an error that names no cause.
"""

from __future__ import annotations

import mmap
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress

from zmqtriton.supervisor.machine.segments import anonymous_memory

ADVICE = (
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
