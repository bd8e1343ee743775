"""The load of one version of a model, from two readings of the broker's counters. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

#: The weight of the latest interval in what is remembered of the earlier ones.
_LATEST_SHARE = 0.4


class Reading(NamedTuple):
    """The broker's counters at one moment."""

    at_s: float
    #: The requests that were answered, and those that are not.
    answered: int
    unanswered: int
    #: Of those, the ones that wait.
    waiting: int
    #: The execution time of all instances together.
    busy_s: float

    @classmethod
    def of(cls, entry: Mapping[str, Any], at_s: float) -> Reading:
        answered = entry["succeeded"] + entry["failed"]
        return cls(at_s, answered, entry["unanswered"], entry["pending"], entry["busy_s"])


class Workload:
    """Requests that arrive and instances that are busy, smoothed over about a second."""

    def __init__(self) -> None:
        self.waiting = 0
        #: Requests per second.
        self.arrival_rate = 0.0
        #: The time that an instance takes for each request; in a batch they share it.
        self.seconds_per_request = 0.0
        #: The instances that were busy at a time.
        self.busy_instances = 0.0
        self._last: Reading | None = None
        #: The execution time since requests were last answered: theirs, in part.
        self._unanswered_busy_s = 0.0
        self._has_rates = False

    def add(self, reading: Reading) -> None:
        """Take the next reading; counters that have been reset begin anew."""
        last, self._last = self._last, reading
        self.waiting = reading.waiting
        if last is None or reading.at_s <= last.at_s:
            return
        answered, busy_s = reading.answered - last.answered, reading.busy_s - last.busy_s
        if answered < 0 or busy_s < 0:
            self._unanswered_busy_s = 0.0
            return
        elapsed_s = reading.at_s - last.at_s
        arrived = max(0, answered + reading.unanswered - last.unanswered)
        share = _LATEST_SHARE if self._has_rates else 1.0
        self._has_rates = True
        self.arrival_rate += share * (arrived / elapsed_s - self.arrival_rate)
        self.busy_instances += share * (busy_s / elapsed_s - self.busy_instances)
        self._unanswered_busy_s += busy_s
        if answered:
            # executions may take many times the interval
            per_request_s = self._unanswered_busy_s / answered
            self._unanswered_busy_s = 0.0
            weight = share if self.seconds_per_request else 1.0
            self.seconds_per_request += weight * (per_request_s - self.seconds_per_request)

    @property
    def offered_instances(self) -> float:
        """Return how many instances the arriving requests would keep busy."""
        return max(self.arrival_rate * self.seconds_per_request, 0.0)

    def expected_wait_s(self, instances: int) -> float:
        """Return how long a request that arrives now will wait."""
        return self.waiting * self.seconds_per_request / max(1, instances)
