"""The offset of the wall clock from the monotonic clock, which all processes measure with.

Used where measured times are shown to people or to other programs, never to measure.
"""

from __future__ import annotations

import time

_LOOKS = 4


def offset_ns() -> int:
    """Return the nanoseconds to add to a time of time.monotonic_ns() for the wall clock."""
    readings = []
    # the machine may do something else between two readings; one of several is undisturbed
    for _ in range(_LOOKS):
        before_ns = time.monotonic_ns()
        wall_ns = time.time_ns()
        readings.append((time.monotonic_ns() - before_ns, wall_ns - before_ns))
    return min(readings)[1]
