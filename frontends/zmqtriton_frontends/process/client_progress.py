"""The progress of a client that the server waits for: sending a request, reading a response.

The more memory is held for a client, the faster it must be. The writer of a stream measures its
pace.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

#: Time limit in seconds for a client to move MIN_BYTES; one that moves less has stalled.
STALL_S = 30.0
MIN_BYTES = 30 * 1024
#: Part of what is held (a 32nd) that has to move instead, if that is more: a client that makes the
#: server hold 64 MiB has to move 70 KB a second.
PART = 32
#: Longest pause, in seconds, of a client that reads what is made bit by bit, while no more than
#: PAUSE_BYTES wait for it: a person at a debugger, a consumer that is slower than its stream.
#: If other clients need the memory, the ledger ends it earlier.
PAUSE_S = 600.0
PAUSE_BYTES = 1 << 20
#: Bytes that the kernel keeps of what it cannot send yet. The writer is woken at half of it. Pieces
#: may be small, and each costs the server the same. As many wait here for a stream of gRPC.
UNSENT_BYTES = 16 << 10


class ClientProgress:
    def __init__(self) -> None:
        self._doing = ""
        #: Bytes that had gone or come, in all, when enough had moved for the last time.
        self._done = 0
        self._moved_at = 0.0

    def is_stalled(self, now: float, doing: str, done: int, held: int) -> bool:
        """Return whether too little has moved for too long; `doing` "" means nothing is to move."""
        return self._is_still(now, doing, done, max(MIN_BYTES, held // PART), STALL_S)

    def is_paused_too_long(self, now: float, done: int, held: int) -> bool:
        """Return whether a reader has stopped, although messages may be small and seldom."""
        max_s = STALL_S if held > PAUSE_BYTES else PAUSE_S
        return self._is_still(now, "reading" if held else "", done, max(1, held // PART), max_s)

    def _is_still(self, now: float, doing: str, done: int, enough: int, max_s: float) -> bool:
        if doing != self._doing or done - self._done >= enough:
            self._doing, self._done, self._moved_at = doing, done, now
        return bool(doing) and now - self._moved_at > max_s


def limit_unsent_bytes(connection: Any) -> None:
    """Limit the kernel's unsent bytes, so that the socket is writable at the reader's pace.

    Otherwise the kernel keeps megabytes, and the socket is writable only when a third of them was
    read: a slow reader would seem to stop for seconds, and would be ended.
    """
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with suppress(OSError, ValueError):  # it is closed, and its protocol has not heard of it yet
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
