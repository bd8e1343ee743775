"""Figures of several rounds beside their bounds, and the promises that a tool saw broken."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.support import leaks


def print_figure(name: str, values: Sequence[float], bound: float, unit: str = "ms") -> bool:
    """Print median and maximum; return True if the median is within the bound."""
    median = statistics.median(values)
    is_met = median <= bound
    print(
        f"{name:58} median {median:8.1f} {unit}  max {max(values):8.1f} {unit}  "
        f"bound {bound:.0f} {'met' if is_met else 'MISSED'}  ({len(values)} rounds)",
        flush=True,
    )
    return is_met


@contextmanager
def leaving_nothing() -> Iterator[list[str]]:
    """Yield the list of broken promises; after the block what is left behind is one of them."""
    mark = leaks.mark_session()
    before = leaks.take_snapshot(mark)
    broken: list[str] = []
    yield broken
    left = leaks.find_leaks(before, mark)
    print("left behind:", left or "nothing", flush=True)
    broken += [f"left behind: {each}" for each in left]
