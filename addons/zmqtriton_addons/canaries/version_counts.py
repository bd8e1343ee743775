"""The broker's counts of one version on trial: its requests, their ends, and their times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import ceil
from operator import add, sub
from typing import Any, NamedTuple

from zmqtriton_addons.canaries.settings import LatencyMeasure

#: How many durations there were of each size, in nanoseconds.
Times = Counter[int]
NO_TIMES: Times = Counter()


class VersionCounts(NamedTuple):
    """Requests to one version since its broker began to count."""

    succeeded: int = 0
    #: Failures that were not their clients' wish and did not come from overload.
    faults: int = 0
    #: The time of those that succeeded, from their arrival to their answer.
    success_ns: int = 0
    #: Requests whose clients did not wait for the answer.
    cancelled: int = 0
    #: Those that were executed, and the time of that.
    executed: int = 0
    compute_ns: int = 0
    request_times: Times = NO_TIMES
    compute_times: Times = NO_TIMES

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> VersionCounts:
        """Read an entry of the broker's counts."""
        trial = entry.get("trial", {})
        # requests whose clients did not wait count as cancelled, however they ended later
        unawaited, late_successes, late_failures = entry.get("unawaited", (0, 0, 0))
        return cls(
            entry["succeeded"] - late_successes,
            entry["faults"] - late_failures,
            entry["success_ns"],
            entry["failures"].get("CANCELED", 0) + unawaited,
            entry["executed"],
            entry["compute_ns"],
            _times(trial.get("request", {})),
            _times(trial.get("compute", {})),
        )

    @property
    def failed(self) -> int:
        return self.faults + self.cancelled

    @property
    def requests(self) -> int:
        return self.succeeded + self.failed

    @property
    def mean_ns(self) -> float:
        return self.success_ns / self.succeeded if self.succeeded else 0.0

    def latency_ns(self, measure: LatencyMeasure) -> float:
        """Return the latency as it is to be measured; 0 without any request."""
        if measure.percentile:
            times = self.compute_times if measure.is_compute else self.request_times
            return _percentile(times, measure.percentile)
        if not measure.is_compute:
            return self.mean_ns
        return self.compute_ns / self.executed if self.executed else 0.0

    def since(self, earlier: VersionCounts) -> VersionCounts:
        return VersionCounts(*map(sub, self, earlier))

    def plus(self, other: VersionCounts) -> VersionCounts:
        return VersionCounts(*map(add, self, other))

    @property
    def has_begun_anew(self) -> bool:
        """True of the difference to an earlier broker, or to an earlier loading of the version."""
        return any(isinstance(count, int) and count < 0 for count in self)


def _times(counts: Mapping[str, int]) -> Times:
    return Counter({int(ns): count for ns, count in counts.items()})


def _percentile(times: Times, percentage: float) -> float:
    """Return what so many percent of the durations do not exceed; 0 without any."""
    rank = ceil(percentage / 100 * sum(times.values()))
    for ns in sorted(times):
        rank -= times[ns]
        if rank <= 0:
            return float(ns)
    return 0.0
