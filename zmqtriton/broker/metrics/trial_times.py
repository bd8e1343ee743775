"""The durations of requests and executions of a version that is compared with another one.

Counted by size, so that memory is bounded and two counts can be subtracted: a percentile of the
time between them is wrong by a sixteenth at most. Requests that were not copied are counted, too.
"""

from __future__ import annotations

from typing import Any

#: Durations below this are one size.
_LEAST_NS = 1024


class TrialTimes:
    __slots__ = ("_compute", "_request", "uncopied")

    def __init__(self) -> None:
        #: Requests of models and ensembles that a canary would have got copies of.
        self.uncopied = 0
        self._compute: dict[int, int] = {}
        self._request: dict[int, int] = {}

    def add_request(self, ns: int) -> None:
        """Count a request that has succeeded: the time from its arrival to its answer."""
        _add(self._request, ns, 1)

    def add_execution(self, ns: int, requests: int) -> None:
        """Count an execution, once for each of its requests."""
        _add(self._compute, ns, requests)

    def as_dict(self) -> dict[str, Any]:
        """Return the counts of durations by nanoseconds, and that of requests."""
        times = {
            name: {str(_middle_ns(size)): count for size, count in sizes.items()}
            for name, sizes in (("compute", self._compute), ("request", self._request))
        }
        return {**times, "uncopied": self.uncopied}


def _add(sizes: dict[int, int], ns: int, count: int) -> None:
    """Count a duration by its highest bit and the three bits after that."""
    ns = max(ns, _LEAST_NS)
    bits = ns.bit_length()
    size = bits << 3 | (ns >> (bits - 4)) & 7
    sizes[size] = sizes.get(size, 0) + count


def _middle_ns(size: int) -> int:
    bits, eighth = size >> 3, size & 7
    return (17 + 2 * eighth) << (bits - 5)
