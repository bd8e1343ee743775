"""Figures of several rounds beside their bounds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


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
