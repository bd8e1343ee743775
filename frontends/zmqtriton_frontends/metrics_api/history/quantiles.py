"""Quantiles of values that were counted in buckets."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """Return what this share of the values does not exceed; None if there are no values.

    `bounds` are the upper ones of the buckets, the last of which has none.
    """
    sums = [*accumulate(counts)]
    rank = share * sums[-1]
    if rank <= 0:
        return None
    bucket = bisect_left(sums, rank)
    if bucket >= len(bounds):
        return float(bounds[-1])
    lower = bounds[bucket - 1] if bucket else 0
    within = 1 - (sums[bucket] - rank) / counts[bucket]
    return lower + within * (bounds[bucket] - lower)
