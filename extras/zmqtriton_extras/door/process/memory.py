"""The memory of the door's process, which libzmq fills with whatever clients send.

libzmq limits a frame, but not all frames of a message. If it gets no memory, it ends the frame's
connection or, at worst, this process: no other process has to end.
"""

from __future__ import annotations

import logging
import resource

from zmqtriton.sdk.frontend import unused_of

_log = logging.getLogger(__name__)

#: Bytes for messages that have arrived and were not read yet.
_UNREAD_BYTES = 1 << 30
#: Bytes for threads and libraries, which cannot use the free heap of the C library.
_ROOM_BYTES = 64 << 20
#: A heap with this much to spare keeps what was freed; until then it is in use.
_SPARE_BYTES = 256 << 20


class MemoryLimit:
    """A limit of memory for requests, as much for responses, and for messages that libzmq reads.

    The kernel counts addresses. A heap that an endless message has filled keeps all its addresses
    if a small piece at its end is in use: then no thread could be started, although all memory is
    free. The limit then rises, to leave room above the heap; if that continues, the process ends.
    """

    def __init__(self, client_bytes: int) -> None:
        self._least = _own_bytes() + 2 * client_bytes + _UNREAD_BYTES
        self._set(self._least)

    def check(self) -> None:
        """Raise the limit if needed; SystemExit if the heap is too large. Call once a second."""
        used = _own_bytes()
        if used + _ROOM_BYTES > self._least + _UNREAD_BYTES:
            _log.error("messages without end have left the door no memory: it is started anew")
            raise SystemExit(1)
        if used + _ROOM_BYTES <= self._least or unused_of(used) > _SPARE_BYTES:
            self._set(max(self._least, used + _ROOM_BYTES))

    def _set(self, limit: int) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if hard != resource.RLIM_INFINITY:
            limit = min(limit, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _own_bytes() -> int:
    """Return the memory that the limit counts: private and writable."""
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmData:"):
                return int(line.split()[1]) << 10
    return 0
