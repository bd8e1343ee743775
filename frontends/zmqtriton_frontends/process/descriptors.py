"""The number of connections that a process can have with the descriptors that it may open."""

from __future__ import annotations

import resource

#: For segments of shared memory, files, and connections that have yet to be accepted.
_RESERVED = 96


def max_connections() -> int:
    """Return how many; with more there would soon be no descriptors for anything else."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, limit - _RESERVED)
