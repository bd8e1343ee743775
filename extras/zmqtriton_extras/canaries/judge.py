"""Judges a canary by the broker's counts: its failures, its latency, and hanging executions.

Each judgement is about the requests since the last one, so that a version which fails after a
million good answers is noticed as well. A request whose client did not wait counts as failed, since
clients leave a version that is too slow or hangs; it does not count if clients leave the stable
version as often. Knows neither clocks nor models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil
from operator import add, sub
from typing import Any, NamedTuple

from zmqtriton_extras.canaries.settings import CanarySettings, LatencyMeasure

_MS, _S = 1e6, 1e9
#: Minimum duration of an execution that hangs, as a multiple of the stable version's mean.
_MUCH_LONGER = 10

#: The ages of the oldest and the newest execution of each instance; 0 of idle ones.
Executing = Sequence[Sequence[int]]
#: Number of durations by size, in nanoseconds.
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
    #: Number of executed requests, and the time of their execution.
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
        """Return the latency that the canary is judged by; 0 without any request."""
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
        """True if a difference of counts spans two brokers, or two loads of the version."""
        return any(isinstance(count, int) and count < 0 for count in self)


def _times(counts: Mapping[str, int]) -> Times:
    return Counter({int(ns): count for ns, count in counts.items()})


def _percentile(times: Times, percentage: float) -> float:
    """Return a percentile of the durations; 0 without any."""
    rank = ceil(percentage / 100 * sum(times.values()))
    for ns in sorted(times):
        rank -= times[ns]
        if rank <= 0:
            return float(ns)
    return 0.0


class _Pair(NamedTuple):
    stable: VersionCounts
    canary: VersionCounts

    def since(self, earlier: _Pair) -> _Pair:
        return _Pair(self.stable.since(earlier.stable), self.canary.since(earlier.canary))

    def plus(self, other: _Pair) -> _Pair:
        return _Pair(self.stable.plus(other.stable), self.canary.plus(other.canary))


class Judge:
    def __init__(self) -> None:
        self._first: _Pair | None = None
        self._last: _Pair | None = None
        #: Counts of the current broker and the current generations.
        self._newest = _Pair(VersionCounts(), VersionCounts())
        #: Counts from before a count started again.
        self._before = _Pair(VersionCounts(), VersionCounts())

    @property
    def total(self) -> _Pair:
        """All requests since the canary began."""
        if self._first is None:
            return self._before
        return self._before.plus(self._newest.since(self._first))

    def judge(
        self,
        settings: CanarySettings,
        stable: VersionCounts,
        canary: VersionCounts,
        executing: Executing = (),
        *,
        is_decoupled: bool = False,
    ) -> str:
        """Add the present counts; return why the canary must end, or ""."""
        now = _Pair(stable, canary)
        if self._first is None or self._last is None or _has_begun_anew(self._newest, now):
            self._before, self._first = self.total, now
            self._last = self._newest = now
            return ""
        self._newest = now
        limit_ns = self._longest_ns(settings, is_decoupled=is_decoupled)
        stuck = [newest for _, newest in executing if newest > limit_ns]
        if stuck and len(stuck) == len(executing):
            return (
                f"it hangs: none of its {len(stuck)} instances has ended an execution, or begun "
                f"another one, for {min(stuck) / _S:.0f} s"
            )
        new = now.since(self._last)
        hanging = sum(oldest > limit_ns for oldest, _ in executing)
        if new.canary.requests + hanging < settings.min_requests:
            return ""
        self._last = now
        reference = new.stable
        if reference.requests < settings.min_requests:
            reference = self.total.stable
        failing = _fails(settings, reference, new.canary, hanging)
        measure = _measure(settings, is_decoupled=is_decoupled)
        return failing or _lags(settings.abort_latency, measure, reference, new.canary)

    def slowdown(
        self, settings: CanarySettings, *, is_decoupled: bool = False
    ) -> tuple[float, str]:
        """Return the canary's latency as a multiple of the stable version's, and both in words.

        The latencies are of all requests since the canary began; 0 and "" with too few of them.
        """
        stable, canary = self.total
        measure = _measure(settings, is_decoupled=is_decoupled)
        reference_ns, latency_ns = stable.latency_ns(measure), canary.latency_ns(measure)
        if not reference_ns or min(stable.requests, canary.requests) < settings.min_requests:
            return 0.0, ""
        return latency_ns / reference_ns, (
            f"its {_in_words(measure)} is {latency_ns / _MS:.2f} ms, "
            f"{latency_ns / reference_ns:.3g} times that of the stable version"
        )

    def _longest_ns(self, settings: CanarySettings, *, is_decoupled: bool) -> float:
        """Return the maximum age in ns of an execution; an older one counts as hanging."""
        mean_ns = self.total.stable.mean_ns
        if settings.abort_hang_s is None or (is_decoupled and not mean_ns):
            return float("inf")  # a stream may take as long as it likes
        return max(settings.abort_hang_s * _S, _MUCH_LONGER * mean_ns)


def _measure(settings: CanarySettings, *, is_decoupled: bool) -> LatencyMeasure:
    is_compute = settings.latency.is_compute and not is_decoupled
    return settings.latency._replace(is_compute=is_compute)


def _has_begun_anew(before: _Pair, now: _Pair) -> bool:
    """True if a broker has died or a version was reloaded, so that counts begin at zero."""
    return any(version.has_begun_anew for version in now.since(before))


def _fails(
    settings: CanarySettings, stable: VersionCounts, canary: VersionCounts, hanging: int
) -> str:
    limit = settings.abort_failures
    if limit is None:
        return ""
    failed, requests = canary.failed + hanging, canary.requests + hanging
    share, of_stable = _percentage(failed, requests), _percentage(stable.failed, stable.requests)
    if share <= of_stable + limit:
        return ""
    parts = [
        f"{number} {what}"
        for number, what in ((canary.cancelled, "left by their clients"), (hanging, "hanging"))
        if number
    ]
    of_them = f" ({', '.join(parts)})" if parts else ""
    return (
        f"{failed} of {requests} requests failed{of_them}, {share:.1f} % against "
        f"{of_stable:.1f} % of the stable version; {limit:g} % more are allowed"
    )


def _percentage(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


def _lags(
    limit: float | None, measure: LatencyMeasure, stable: VersionCounts, canary: VersionCounts
) -> str:
    if limit is None:
        return ""
    reference_ns, latency_ns = stable.latency_ns(measure), canary.latency_ns(measure)
    if not reference_ns or latency_ns <= limit * reference_ns:
        return ""
    return (
        f"the {_in_words(measure)} was {latency_ns / _MS:.2f} ms against "
        f"{reference_ns / _MS:.2f} ms of the stable version; a factor of {limit:g} is allowed"
    )


def _in_words(measure: LatencyMeasure) -> str:
    what = "execution time" if measure.is_compute else "latency"
    return (
        f"{measure.percentile:g}th percentile of the {what}"
        if measure.percentile
        else (f"mean {what}")
    )
