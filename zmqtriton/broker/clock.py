"""What measures how long the broker's own work takes; moments come with each event instead."""

from __future__ import annotations

from collections.abc import Callable

#: Nanoseconds, of which differences count.
Clock = Callable[[], int]


def no_clock() -> int:
    """For who only decides; what is done here is measured by the service's."""
    return 0
