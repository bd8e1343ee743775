"""A limit of this process's own memory, for what libzmq reads and cannot be told to refuse.

libzmq has a limit for a frame and none for all frames of a message. Where memory is refused, it
ends the connection that the frame came by, or the process at worst: no other has to end for it.
"""

from __future__ import annotations

import resource

#: For messages that have arrived and are not yet looked at.
_UNREAD_BYTES = 1 << 30


def limit_memory(client_bytes: int) -> None:
    """Let this process have so much for requests, as much for answers, and what libzmq reads."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = _own_bytes() + 2 * client_bytes + _UNREAD_BYTES
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _own_bytes() -> int:
    """Return what the limit counts now: memory that is private and can be written to."""
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmData:"):
                return int(line.split()[1]) << 10
    return 0
