"""The pace of a slow client, as the writer of its stream notices it."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Protocol

#: How much the kernel keeps that it cannot send yet. Whoever writes is woken at half of it.
UNSENT_BYTES = 64 << 10


class Connection(Protocol):
    @property
    def family(self) -> int:
        """The kind of its addresses."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        """Set an option of the kernel."""


def limit_unsent_bytes(connection: Connection | None) -> None:
    """Limit the kernel's unsent bytes, so that the socket is writable at the reader's pace.

    Otherwise it keeps megabytes, and is writable when it is rid of a third of them: a slow reader
    would seem to stand still for seconds, and a model would be told that it has stopped.
    """
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with suppress(OSError, ValueError):  # it is closed, and its protocol has not heard of it yet
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
