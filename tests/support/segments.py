"""Segments of arenas, as the supervisor makes them."""

from __future__ import annotations

import os

from zmqtriton_floor.arena import Allocation, Arena, seal_size
from zmqtriton_floor.mappings import Mappings


def segment(size: int) -> int:
    """Return a descriptor of so much shared memory, whose size stays."""
    descriptor = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.truncate(descriptor, size)
    seal_size(descriptor)
    return descriptor


def allocate(arena: Arena, size: int, *readers: Mappings, owner: int = 0) -> Allocation:
    """Return a block of an arena that gets as many segments as it needs, and of who maps them."""
    allocation = arena.allocate(size)
    while allocation is None:
        request = arena.segment_request(size)
        descriptor = segment(request.size)
        for mappings in readers:
            mappings.add(owner, request.segment, os.dup(descriptor))
        arena.add(request, descriptor)
        allocation = arena.allocate(size)
    return allocation
