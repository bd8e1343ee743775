"""What every frontend process does to itself once, before it serves. Does nothing on import."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15


def set_name(name: str) -> None:
    """The name that `ps` shows; the kernel keeps 15 bytes of it."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def die_with(parent: int) -> None:
    """From now on the kernel kills this process when its parent ends; if it has, this exits."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
