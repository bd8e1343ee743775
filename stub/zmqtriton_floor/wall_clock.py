"""How far the clock on the wall is beyond the one that all processes measure by.

Asked where times that were measured are shown to people or to other programs; never to measure.
"""

from __future__ import annotations

import time

_LOOKS = 4


def offset_ns() -> int:
    """What to add to a time of time.monotonic_ns()."""
    found = []
    # Between two looks the machine may do something else for long; of several one is undisturbed.
    for _ in range(_LOOKS):
        before_ns = time.monotonic_ns()
        wall_ns = time.time_ns()
        found.append((time.monotonic_ns() - before_ns, wall_ns - before_ns))
    return min(found)[1]
