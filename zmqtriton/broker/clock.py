"""The clock that measures the broker's own work.

The time of day comes with each event instead.
"""

from __future__ import annotations

from collections.abc import Callable

#: Nanoseconds from an arbitrary origin.
Clock = Callable[[], int]


def no_clock() -> int:
    """A clock that always reads 0, for the simulation and tests. The service passes a real one."""
    return 0
