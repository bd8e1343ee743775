"""The memory of the door's process, which libzmq fills with whatever clients send.

libzmq has a limit for a frame and none for all frames of a message. Where memory is refused, it
ends the connection that the frame came by, or the process at worst: no other has to end for it.
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
    """Memory for requests, as much for answers, and for what libzmq reads.

    The kernel counts addresses. A heap that a message without end has filled keeps them all if a
    small piece at its end is in use: no thread could be started any more, with all memory free. The
    limit then rises, to leave room above; where that goes on and on, the process ends.
    """

    def __init__(self, client_bytes: int) -> None:
        self._least = _own_bytes() + 2 * client_bytes + _UNREAD_BYTES
        self._set(self._least)

    def check(self) -> None:
        """Leave room. To be called once a second. Raises SystemExit when the heap is too large."""
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
