"""The buckets in which requests are counted by how long they took.

Counts of two moments can be subtracted: the difference is of what came between them.
"""

from __future__ import annotations

_FIRST_NS, _LAST_NS = 10_000, 1_000_000_000_000
#: Each is larger than the one before by this factor: a quantile is off by a tenth at most.
_FACTOR = 2 ** (1 / 4)


def _bounds() -> list[int]:
    bounds = [float(_FIRST_NS)]
    while bounds[-1] < _LAST_NS:
        bounds.append(bounds[-1] * _FACTOR)
    return [int(bound) for bound in bounds]


#: The upper bounds of the buckets, the last of which has none.
BOUNDS_NS = _bounds()
BUCKETS = len(BOUNDS_NS) + 1
