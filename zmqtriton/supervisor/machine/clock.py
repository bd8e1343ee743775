"""Moments of the wall clock that stay right when that clock is set.

A machine may start with a wrong time, and get the right one from the network later.
"""

from __future__ import annotations

import time

#: The wall clock less the monotonic one, when this process began.
_OFFSET_S = time.time() - time.monotonic()
#: Seconds of a step of the clock: less is an adjustment, which would only make moments flicker.
_LEAST_STEP_S = 1.0


def now_s() -> float:
    """Return the time by the wall clock as it was set at the start."""
    return _OFFSET_S + time.monotonic()


def step_s() -> float:
    """Return by how much the wall clock was set since then; 0 without such a change."""
    step_s = time.time() - now_s()
    return step_s if abs(step_s) > _LEAST_STEP_S else 0.0
