"""New memory of a fixed size, from kernels and Pythons of any age."""

from __future__ import annotations

import ctypes
import errno
import os

from zmqtriton_floor.arena import seal_size

_CLOEXEC, _ALLOW_SEALING, _NOEXEC_SEAL = 1, 2, 8
_MEMFD_CREATE_SYSCALL = {"x86_64": 319, "aarch64": 279}


def anonymous_memory(size: int, name: str = "zmqtriton") -> int:
    """Return new memory of a fixed size, which no process can resize or execute.

    The kernel shows the name where it is mapped.
    """
    try:
        descriptor = _create_memfd(name, _CLOEXEC | _ALLOW_SEALING | _NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        descriptor = _create_memfd(name, _CLOEXEC | _ALLOW_SEALING)  # before Linux 6.3
    try:
        os.truncate(descriptor, size)
        seal_size(descriptor)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _create_memfd(name: str, flags: int) -> int:
    create = getattr(os, "memfd_create", None)
    if create is not None:
        return int(create(name, flags))
    # Not every Python was built with a C library that has it.
    libc = ctypes.CDLL(None, use_errno=True)
    number = _MEMFD_CREATE_SYSCALL.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    made: int = libc.syscall(number, name.encode(), flags)
    if made < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return made
