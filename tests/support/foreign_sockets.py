"""Sockets of the server's processes, taken by a test: to tear connections between living processes.

The kernel gives a copy of another process's descriptor to whoever may trace it: root, or an
ancestor of the same user.
"""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

import pytest

_PIDFD_GETFD = 438
_PEER = struct.Struct("3i")


def _copy(pidfd: int, descriptor: int) -> int:
    copied = int(ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, pidfd, descriptor, 0))
    if copied < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return copied


def connections(pid: int, peer: int) -> Iterator[socket.socket]:
    """Copies of the stream sockets that a process has accepted from another one."""
    pidfd = os.pidfd_open(pid)
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # closed meanwhile
                if not os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                    continue
                end = socket.socket(fileno=_copy(pidfd, int(name)))
                credentials = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
                is_stream = end.family == socket.AF_UNIX and end.type == socket.SOCK_STREAM
                if is_stream and end.getsockname() and _PEER.unpack(credentials)[0] == peer:
                    yield end
                else:
                    end.close()
    finally:
        os.close(pidfd)


def tear(pid: int, peer: int) -> int:
    """End the connections that a process has accepted from another; return how many."""
    count = 0
    for end in connections(pid, peer):
        with end:
            end.shutdown(socket.SHUT_RDWR)
        count += 1
    return count


def confuse(pid: int, peer: int) -> int:
    """Write strange bytes to the peer on the connections accepted from it; return how many."""
    count = 0
    for end in connections(pid, peer):
        with end:
            end.send(b"\x04\x02??" * 10)
        count += 1
    return count


needs_pidfd_getfd = pytest.mark.skipif(
    os.geteuid() != 0 or platform.machine() not in ("x86_64", "aarch64"),
    reason="only root may take other processes' sockets",
)
