"""What a process asks of the kernel for itself: its name in `ps`, and whose end is its own."""

from __future__ import annotations

import ctypes
import os
import signal

_SET_PDEATHSIG = 1
_SET_NAME = 15
_SET_CHILD_SUBREAPER = 36
# Loaded now: between fork and exec there should be little left to do.
_LIBC = ctypes.CDLL(None)


def set_name(name: str) -> None:
    """The name that `ps` shows; the kernel keeps 15 bytes of it."""
    _LIBC.prctl(_SET_NAME, name.encode(), 0, 0, 0)


def die_with_parent() -> None:
    """From now on the kernel kills this process when its parent ends."""
    _LIBC.prctl(_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def die_with(parent: int) -> None:
    """The same for a parent that may have ended before this; then it exits."""
    die_with_parent()
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """What children leave behind becomes ours, to be reaped, instead of init's."""
    _LIBC.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
