"""A generation's queue, and how it forms batches: which requests share an execute().

A `Queue` returns one request at a time; a `BatchingQueue` follows `dynamic_batching` of the
configuration. Both take requests from a `PriorityLevel` for each priority, whose policy limits the
number of waiting requests and their time; `dispatch` starts the timers. Queues are asked only when
an instance is idle, and know no clock but the times that they get.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from zmqtriton.broker.requests.inflight import InflightRequest, QueuePlace
from zmqtriton.broker.scheduling.choosing import BatchChoice
from zmqtriton_floor.errors import ProtocolError
from zmqtriton_floor.wire import BELOW_ALL, MAX_ROWS, decode_request, make

#: Number of priority levels above which empty ones are dropped.
_FEW = 64


class QueuePolicy(NamedTuple):
    """A `ModelQueuePolicy` of the configuration; the default has no limits."""

    #: Maximum time that a request waits; 0: no limit. A request can ask for less if `may_shorten`
    #: is set.
    timeout_ns: int = 0
    may_shorten: bool = False
    #: True if a request that has waited too long goes behind all others and is not refused.
    delays: bool = False
    #: Maximum number of requests that wait; 0: no limit.
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
        """Return the time when a request has waited too long; 0: never."""
        timeout_ns = self.timeout_ns
        own_ns = request.timeout_us * 1000
        if self.may_shorten and 0 < own_ns < timeout_ns:
            timeout_ns = own_ns
        return request.arrived_ns + timeout_ns if timeout_ns else 0


class PriorityLevel(QueuePlace):
    """All waiting requests of one priority: first those in time, then the late ones."""

    def __init__(self, policy: QueuePolicy) -> None:
        self.policy = policy
        self.is_limited = policy.is_limited
        #: Number of requests that wait here.
        self.size = 0
        #: Requests in time, and late ones, oldest first. Requests that have left or become late
        #: stay until they reach the head.
        self.in_time: deque[InflightRequest] = deque()
        self._late: deque[InflightRequest] = deque()

    @property
    def is_crowded(self) -> bool:
        """True if more requests wait than the limit allows."""
        return 0 < self.policy.max_queue_size < self.size

    def put_back(self, request: InflightRequest) -> None:
        """Put a request that was taken from the queue before all others."""
        request.place = self
        self.size += 1
        (self._late if request.is_late else self.in_time).appendleft(request)

    def demote(self, request: InflightRequest) -> None:
        """Move a request that has waited too long behind all others."""
        request.is_late = True
        self._late.append(request)

    def leave(self, request: InflightRequest) -> None:
        """Remove a request that no caller waits for."""
        request.place = None
        self.size -= 1
        self._drop_left()

    def _drop_left(self) -> None:
        """Drop requests that have left before they reach the head, if there are many."""
        if len(self.in_time) + len(self._late) > 2 * self.size + 64:
            self.in_time = deque(self._waiting_in_time())
            self._late = deque(r for r in self._late if r.place is self)

    def pop(self) -> InflightRequest:
        """Take the next request; there must be one."""
        self.size -= 1
        while True:
            is_late = not self.in_time
            request = (self._late if is_late else self.in_time).popleft()
            if request.place is self and request.is_late is is_late:
                request.place = None
                return request

    def take(self, request: InflightRequest) -> None:
        """Take a waiting request that is not the next."""
        (self._late if request.is_late else self.in_time).remove(request)
        request.place = None
        self.size -= 1
        self._drop_left()

    def _waiting_in_time(self) -> Iterator[InflightRequest]:
        return (r for r in self.in_time if r.place is self and not r.is_late)

    def __iter__(self) -> Iterator[InflightRequest]:
        """Iterate over the waiting requests, in their order."""
        if len(self.in_time) == self.size and not self._late:
            return iter(self.in_time)  # nothing has left: as usual, and at no cost for each
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
        #: True if time limits, limits of their number, or priorities apply to the requests here.
        self.has_rules = self._count > 0 or any(policy.is_limited for policy in policies)
        #: Levels by their priority, the highest one first.
        self.by_priority: dict[int, PriorityLevel] = {}

    def of(self, request: InflightRequest) -> PriorityLevel:
        """Return the level where a request has to wait."""
        number, priority = self._usual, request.priority
        if priority and (priority <= self._count or priority == BELOW_ALL):
            number = priority
        return self.by_priority.get(number) or self._new(number)

    def add(self, request: InflightRequest) -> PriorityLevel:
        """Queue a request at its level, which is returned."""
        # as of() does, without the call
        number, priority = self._usual, request.priority
        if priority and (priority <= self._count or priority == BELOW_ALL):
            number = priority
        level = request.place = self.by_priority.get(number) or self._new(number)
        level.size += 1
        level.in_time.append(request)
        return level

    def end_ns(self, request: InflightRequest) -> int:
        """Return the time when a waiting request is refused; 0: never."""
        expiry_ns = self.of(request).policy.expiry_ns(request)
        return min(filter(None, (request.deadline_ns, expiry_ns)), default=0)

    def _new(self, number: int) -> PriorityLevel:
        kept = self.by_priority
        if len(kept) >= _FEW:
            kept = {n: level for n, level in kept.items() if level.size}
        level = PriorityLevel(self._policies.get(number, self._default))
        self.by_priority = dict(sorted([*kept.items(), (number, level)]))
        return level

    def __iter__(self) -> Iterator[InflightRequest]:
        return itertools.chain.from_iterable(self.by_priority.values())


class Queue:
    """First come, first served, one request per execute()."""

    #: Chooses delay and size; None if they are fixed.
    choice: BatchChoice | None = None

    def __init__(self, batching: dict[str, Any]) -> None:
        self.levels = Levels(batching)
        #: Time of the next question for a batch if nothing else happens; 0: never.
        self.due_ns = 0

    def put_back(self, requests: list[InflightRequest]) -> None:
        """Put requests that were taken but not executed back in front, in this order."""
        for request in reversed(requests):
            self.levels.of(request).put_back(request)

    def pop_batch(self, now_ns: int) -> list[InflightRequest]:
        """Remove and return the next batch; [] if no batch is due."""
        for level in self.levels.by_priority.values():
            if level.size:
                return [level.pop()]
        return []

    def take(self, requests: list[InflightRequest]) -> list[InflightRequest]:
        """Remove a batch of waiting requests that are not the next ones."""
        for request in requests:
            self.levels.of(request).take(request)
        return requests

    def size_of_batch(self, waiting: Iterable[InflightRequest], now_ns: int) -> int:
        """Return the number of these waiting requests that form a batch now; 0 if none is due."""
        return 1 if any(True for _ in waiting) else 0

    def choose(self, waiting: Iterable[InflightRequest], now_ns: int) -> list[InflightRequest]:
        """Return the requests among these waiting ones that form a batch now; [] if none is due.

        The caller takes them.
        """
        return [*itertools.islice(waiting, self.size_of_batch(waiting, now_ns))]

    def is_ready(self, now_ns: int) -> bool:
        """True if there is a batch to take."""
        return bool(self.choose(self.levels, now_ns))


class BatchCandidate(NamedTuple):
    """The next possible batch."""

    #: Number of requests that fit together, and the sum of their sizes.
    requests: int
    size: int
    #: Number of requests up to the largest preferred size, or, with a delay, before the request
    #: that would exceed all preferred sizes; 0 if there is no such number.
    preferred: int
    oldest_ns: int
    #: The next waiting request, which cannot join the batch; None if no other waits.
    closing: InflightRequest | None


class BatchCounts:
    """The counts of batches that show why they are not larger."""

    def __init__(self) -> None:
        self.batches = 0
        self.elements = 0
        #: Batches after which no request of the model was left, waiting or executing.
        self.complete = 0
        #: Batches that ended at a request with other inputs or shapes.
        self.parted = 0
        #: The inputs that made the difference, by name: "shape", or "presence" of an optional one.
        self.differences: dict[str, str] = {}

    def count(self, batch: list[InflightRequest], closing: InflightRequest | None) -> None:
        self.batches += 1
        for request in batch:
            self.elements += request.elements
        self.complete += batch[0].generation.unanswered == len(batch)
        if closing is not None and closing.batch_key != batch[0].batch_key:
            self.parted += 1
            if not self.parted & (self.parted - 1):  # of many ever fewer are looked into
                self._compare(batch[0], closing)

    def _compare(self, one: InflightRequest, other: InflightRequest) -> None:
        with suppress(ProtocolError):  # the stub will refuse it
            left, right = (
                {tensor.name: tensor.shape[1:] for tensor in decode_request(request.body).inputs}
                for request in (one, other)
            )
            for name in sorted(left.keys() | right.keys()):
                if (name in left) != (name in right):
                    self.differences[name] = "presence"
                elif left[name] != right[name]:
                    self.differences.setdefault(name, "shape")


class BatchingQueue(Queue):
    """Waits for a preferred size, but no longer than the oldest request may be delayed.

    A batch ends before a request that would make it too large or that has another key: order is
    kept, and no request is split.
    """

    def __init__(self, batching: dict[str, Any], max_batch_size: int) -> None:
        super().__init__(batching)
        self._max_batch_size = max_batch_size
        sizes = batching.get("preferred_batch_size") or [max_batch_size]
        self._preferred = frozenset(sizes)
        self._target_size = max(sizes)
        self._delay_ns = int(batching.get("max_queue_delay_microseconds", 0)) * 1000
        self._counts = BatchCounts()
        self._closing: InflightRequest | None = None

    def pop_batch(self, now_ns: int) -> list[InflightRequest]:
        batch = self._pop(self.size_of_batch(self.levels, now_ns))
        if batch:
            self._counts.count(batch, self._closing)
            if self.choice is not None:
                self.choice.note(batch)
        return batch

    def take(self, requests: list[InflightRequest]) -> list[InflightRequest]:
        self._counts.count(requests, self._closing)
        if self.choice is not None:
            self.choice.note(requests)
        return super().take(requests)

    def choose_by(self, choice: BatchChoice) -> None:
        """Take delay and size from a choice; call this again when it has learned."""
        self.choice = choice
        self._delay_ns, size = choice.pair
        self._max_batch_size = self._target_size = size
        self._preferred = frozenset([size])

    def report(self) -> dict[str, Any]:
        """Return the counts of its batches, and the limits of their size."""
        delay_us = self._delay_ns // 1000
        choice = {} if self.choice is None else {"auto": self.choice.target.text}
        counts = vars(self._counts)
        return {"target": self._target_size, "delay_us": delay_us, **choice, **counts}

    def size_of_batch(self, waiting: Iterable[InflightRequest], now_ns: int) -> int:
        self.due_ns, self._closing = 0, None
        candidate = self._find_candidate(waiting)
        if candidate is None:
            return 0
        due_ns = candidate.oldest_ns + self._delay_ns
        if candidate.preferred and (now_ns < due_ns or not self._delay_ns):
            return candidate.preferred
        self._closing = candidate.closing
        if self._closing is not None or candidate.size >= self._target_size:
            return candidate.requests
        if self.choice is not None and now_ns < due_ns:
            ends = ((one.arrived_ns, self.levels.end_ns(one)) for one in self.levels)
            due_ns = min([due_ns, *(self.choice.latest_ns(*one) for one in ends if one[1])])
        if now_ns >= due_ns:
            return candidate.requests
        self.due_ns = due_ns
        return 0

    def _find_candidate(self, waiting: Iterable[InflightRequest]) -> BatchCandidate | None:
        """Find the next possible batch; None without a request.

        A request that is too large by itself was checked against another configuration, and becomes
        a batch alone.
        """
        count = size = preferred = oldest_ns = 0
        key: int | None = None
        for request in waiting:
            larger = size + request.elements
            if key is None:
                key, oldest_ns = request.batch_key, request.queued_ns
            if larger > self._max_batch_size or request.batch_key != key or count == MAX_ROWS:
                return make(BatchCandidate, (max(count, 1), size, preferred, oldest_ns, request))
            if larger > self._target_size and count and not preferred and self._delay_ns:
                # as in Triton: what would exceed all preferred sizes ends a batch without one, too
                preferred = count
            count, size = count + 1, larger
            oldest_ns = min(oldest_ns, request.queued_ns)
            if size in self._preferred:
                preferred = count
        return make(BatchCandidate, (count, size, preferred, oldest_ns, None)) if count else None

    def _pop(self, count: int) -> list[InflightRequest]:
        """Remove and return the next `count` requests; there must be as many."""
        batch: list[InflightRequest] = []
        for level in self.levels.by_priority.values():
            while level.size and len(batch) < count:
                batch.append(level.pop())
        return batch
