"""Times of the wall clock that stay right when the clock is set.

A machine may start with a wrong time, and get the right time from the network later.
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
    """Return the seconds that the wall clock was set forward since the start; 0 if it was not."""
    step_s = time.time() - now_s()
    return step_s if abs(step_s) > _LEAST_STEP_S else 0.0
