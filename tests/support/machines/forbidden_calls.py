"""Runs a program to which system calls are forbidden, as the profile of a container would.

    python forbidden_calls.py ENOSYS memfd_create,pidfd_open -- PROGRAM ARGUMENT...

A filter of the kernel's (seccomp), which all that the program starts has, too.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Sequence

#: The numbers of the calls, by architecture.
_NUMBERS = {
    "clone3": (435, 435),
    "close_range": (436, 436),
    "fallocate": (285, 47),
    "io_uring_setup": (425, 425),
    "memfd_create": (319, 279),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "prlimit64": (302, 261),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "sched_setaffinity": (203, 122),
    "setns": (308, 268),
    "statx": (332, 291),
    "timerfd_create": (283, 85),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
}
_ARCHITECTURES = ("x86_64", "aarch64")

_SET_NO_NEW_PRIVS, _SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_LOAD_NUMBER = struct.pack("=HBBI", 0x20, 0, 0, 0)
_JUMP_IF_EQUAL, _RETURN = 0x15, 0x06
_ALLOW, _FAIL_WITH = 0x7FFF0000, 0x00050000


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]


def without(error: str, *calls: str) -> list[str]:
    """Return the beginning of a command line to which these calls fail so, such as "EPERM"."""
    return [sys.executable, __file__, error, ",".join(calls), "--"]


def can_forbid() -> bool:
    return platform.machine() in _ARCHITECTURES


def forbid(number: int, calls: Sequence[str]) -> None:
    """Forbid the calls to this process for good."""
    column = _ARCHITECTURES.index(platform.machine())
    numbers = [_NUMBERS[call][column] for call in calls]
    steps = [_LOAD_NUMBER]
    for place, each in enumerate(numbers):
        steps.append(struct.pack("=HBBI", _JUMP_IF_EQUAL, len(numbers) - place, 0, each))
    steps += [struct.pack("=HBBI", _RETURN, 0, 0, code) for code in (_ALLOW, _FAIL_WITH | number)]
    code = ctypes.create_string_buffer(b"".join(steps))
    program = _Program(len(steps), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in (
        (_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0),
    ):
        if libc.prctl(*arguments):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    forbid(getattr(errno, sys.argv[1]), sys.argv[2].split(","))
    os.execvp(sys.argv[4], sys.argv[4:])
