"""Queue policies: how long requests of one priority may wait, and how many may.

`batching` keeps a `PriorityLevel` for each priority and takes requests from them; `dispatch` starts
the timers and tells when one has run out. Knows no clock but the times it is given.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from zmqtriton.broker.requests.inflight import InflightRequest, Place
from zmqtriton_floor.wire import BELOW_ALL

#: With more levels than this, empty ones are dropped.
_FEW = 64


class QueuePolicy(NamedTuple):
    """A `ModelQueuePolicy` of the configuration; the default limits nothing."""

    #: How long a request may wait, unless it asks for less itself; 0 is no limit.
    timeout_ns: int = 0
    may_shorten: bool = False
    #: A request that has waited too long goes behind all others and is not refused.
    delays: bool = False
    #: How many may wait; 0 is no limit.
    max_queue_size: int = 0

    @classmethod
    def of(cls, section: dict[str, Any]) -> QueuePolicy:
        return cls(
            int(section.get("default_timeout_microseconds", 0)) * 1000,
            bool(section.get("allow_timeout_override", False)),
            section.get("timeout_action") == "DELAY",
            int(section.get("max_queue_size", 0)),
        )

    @property
    def is_limited(self) -> bool:
        return self.timeout_ns > 0 or self.max_queue_size > 0

    def expiry_ns(self, request: InflightRequest) -> int:
        """Return when a request has waited too long; 0 is never."""
        timeout_ns = self.timeout_ns
        own_ns = request.row.timeout_us * 1000
        if self.may_shorten and 0 < own_ns < timeout_ns:
            timeout_ns = own_ns
        return request.arrived_ns + timeout_ns if timeout_ns else 0


class PriorityLevel(Place):
    """All waiting requests of one priority: first those in time, then the late ones."""

    def __init__(self, policy: QueuePolicy) -> None:
        self.policy = policy
        self.is_limited = policy.is_limited
        #: How many wait here.
        self.size = 0
        #: Oldest first. Requests that have left or become late stay until they reach the head.
        self._in_time: deque[InflightRequest] = deque()
        self._late: deque[InflightRequest] = deque()

    @property
    def is_crowded(self) -> bool:
        """True if more requests wait than may."""
        return 0 < self.policy.max_queue_size < self.size

    def add(self, request: InflightRequest) -> None:
        request.place = self
        self.size += 1
        self._in_time.append(request)

    def put_back(self, request: InflightRequest) -> None:
        """Put a request that was taken back before all others."""
        request.place = self
        self.size += 1
        (self._late if request.is_late else self._in_time).appendleft(request)

    def demote(self, request: InflightRequest) -> None:
        """Move a request that has waited too long behind all others."""
        request.is_late = True
        self._late.append(request)

    def leave(self, request: InflightRequest) -> None:
        """Drop a request that is not wanted any more."""
        request.place = None
        self.size -= 1
        if len(self._in_time) + len(self._late) > 2 * self.size + 64:
            self._in_time = deque(self._waiting_in_time())
            self._late = deque(r for r in self._late if r.place is self)

    def pop(self) -> InflightRequest:
        """Take the next request, which must be there."""
        in_time, late = self._in_time, self._late
        while in_time and (in_time[0].place is not self or in_time[0].is_late):
            in_time.popleft()
        while not in_time and late[0].place is not self:
            late.popleft()
        request = in_time.popleft() if in_time else late.popleft()
        request.place = None
        self.size -= 1
        return request

    def take(self, request: InflightRequest) -> None:
        """Take a waiting request that is not the next."""
        (self._late if request.is_late else self._in_time).remove(request)
        request.place = None
        self.size -= 1

    def _waiting_in_time(self) -> Iterator[InflightRequest]:
        return (r for r in self._in_time if r.place is self and not r.is_late)

    def __iter__(self) -> Iterator[InflightRequest]:
        """Iterate over the waiting requests, in their order."""
        if len(self._in_time) == self.size and not self._late:
            return iter(self._in_time)  # nothing has left: as usual, and at no cost for each
        late = (r for r in self._late if r.place is self)
        return itertools.chain(self._waiting_in_time(), late)


class Levels:
    """The levels of a queue, highest priority first.

    There may be as many as 64 bits can count, so a level exists only while it is in use.
    """

    def __init__(self, batching: dict[str, Any]) -> None:
        self._count = int(batching.get("priority_levels", 0))
        self._usual = int(batching.get("default_priority_level", 0)) if self._count else 0
        self._default = QueuePolicy.of(batching.get("default_queue_policy", {}))
        own = batching.get("priority_queue_policy", {}) if self._count else {}
        self._policies = {int(number): QueuePolicy.of(section) for number, section in own.items()}
        policies = (self._default, *self._policies.values())
        #: Time limits, limits of their number, or priorities apply to what waits here.
        self.has_rules = self._count > 0 or any(policy.is_limited for policy in policies)
        #: Highest first.
        self.by_priority: dict[int, PriorityLevel] = {}

    def of(self, request: InflightRequest) -> PriorityLevel:
        """Return the level in which a request has to wait."""
        number, priority = self._usual, request.row.priority
        if priority and (priority <= self._count or priority == BELOW_ALL):
            number = priority
        level = self.by_priority.get(number)
        return level if level is not None else self._new(number)

    def _new(self, number: int) -> PriorityLevel:
        kept = self.by_priority
        if len(kept) >= _FEW:
            kept = {n: level for n, level in kept.items() if level.size}
        level = PriorityLevel(self._policies.get(number, self._default))
        self.by_priority = dict(sorted([*kept.items(), (number, level)]))
        return level

    def first(self) -> PriorityLevel | None:
        """Return the highest level in which somebody waits."""
        for level in self.by_priority.values():
            if level.size:
                return level
        return None

    def __iter__(self) -> Iterator[InflightRequest]:
        return itertools.chain.from_iterable(self.by_priority.values())
