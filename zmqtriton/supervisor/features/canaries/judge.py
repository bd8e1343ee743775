"""Judges a canary by the broker's counts: by its failures and its latency.

Each judgement is about the requests since the last one, so that a version that goes bad after a
million good answers is noticed, too. Knows neither clocks nor models.
"""

from __future__ import annotations

from typing import NamedTuple

from zmqtriton.config.canaries import CanarySettings

_MS = 1e6


class VersionCounts(NamedTuple):
    """Requests to one version since its broker began to count."""

    succeeded: int = 0
    #: Failures that were not their clients' wish and did not come from overload.
    failed: int = 0
    #: The time of those that succeeded, from their arrival to their answer.
    success_ns: int = 0

    @property
    def requests(self) -> int:
        return self.succeeded + self.failed

    @property
    def failed_percentage(self) -> float:
        return 100 * self.failed / self.requests if self.requests else 0.0

    @property
    def mean_ns(self) -> float:
        return self.success_ns / self.succeeded if self.succeeded else 0.0

    def since(self, earlier: VersionCounts) -> VersionCounts:
        return VersionCounts(*(now - then for now, then in zip(self, earlier, strict=True)))


class _Pair(NamedTuple):
    stable: VersionCounts
    canary: VersionCounts

    def since(self, earlier: _Pair) -> _Pair:
        return _Pair(self.stable.since(earlier.stable), self.canary.since(earlier.canary))


class Judge:
    def __init__(self) -> None:
        self._first: _Pair | None = None
        self._last: _Pair | None = None
        #: Of the current broker and the current generations.
        self._newest = _Pair(VersionCounts(), VersionCounts())
        #: What was counted before a count began anew.
        self._before = _Pair(VersionCounts(), VersionCounts())

    @property
    def total(self) -> _Pair:
        """All requests since the canary began."""
        if self._first is None:
            return self._before
        counted = self._newest.since(self._first)
        pairs = zip(self._before, counted, strict=True)
        return _Pair(*(VersionCounts(*map(sum, zip(a, b, strict=True))) for a, b in pairs))

    def judge(self, settings: CanarySettings, stable: VersionCounts, canary: VersionCounts) -> str:
        """Take the counts of this moment; return why the canary must end, or ""."""
        now = _Pair(stable, canary)
        if self._first is None or self._last is None or _has_begun_anew(self._newest, now):
            self._before, self._first = self.total, now
            self._last = self._newest = now
            return ""
        self._newest = now
        new = now.since(self._last)
        if new.canary.requests < settings.min_requests:
            return ""
        self._last = now
        reference = new.stable
        if reference.requests < settings.min_requests:
            reference = self.total.stable
        return _fails(settings, reference, new.canary) or _lags(settings, reference, new.canary)


def _has_begun_anew(before: _Pair, now: _Pair) -> bool:
    """True if a broker has died or a version was reloaded, which counts from zero."""
    return any(count < 0 for version in now.since(before) for count in version)


def _fails(settings: CanarySettings, stable: VersionCounts, canary: VersionCounts) -> str:
    limit = settings.abort_failures
    if limit is None or canary.failed_percentage <= stable.failed_percentage + limit:
        return ""
    return (
        f"{canary.failed} of {canary.requests} requests failed, {canary.failed_percentage:.1f} % "
        f"against {stable.failed_percentage:.1f} % of the stable version; {limit:g} % more are "
        "allowed"
    )


def _lags(settings: CanarySettings, stable: VersionCounts, canary: VersionCounts) -> str:
    limit = settings.abort_latency
    if limit is None or not stable.succeeded or canary.mean_ns <= limit * stable.mean_ns:
        return ""
    return (
        f"the mean latency was {canary.mean_ns / _MS:.2f} ms against {stable.mean_ns / _MS:.2f} ms "
        f"of the stable version; a factor of {limit:g} is allowed"
    )
