"""A generation's queue, and how it forms batches: which requests go together into an execute().

A `Queue` gives out one request at a time; a `BatchingQueue` follows `dynamic_batching` of the
configuration. The order of waiting requests is decided in `queue_policy`. Queues are asked only
when an instance is idle, and know no clock but the times they are given.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton.broker.scheduling.queue_policy import Levels
from zmqtriton_floor.wire import MAX_ROWS


class Queue:
    """First come, first served, one request per execute()."""

    def __init__(self, batching: dict[str, Any]) -> None:
        self.levels = Levels(batching)
        #: When to ask for a batch again though nothing else happens; 0 is never.
        self.due_ns = 0

    def put_back(self, requests: list[InflightRequest]) -> None:
        """Put requests that were taken but not executed back in front, in this order."""
        for request in reversed(requests):
            self.levels.of(request).put_back(request)

    def pop_batch(self, now_ns: int) -> list[InflightRequest]:
        """Take the next batch, or [] without one yet."""
        for level in self.levels.by_priority.values():
            if level.size:
                return [level.pop()]
        return []

    def is_ready(self, now_ns: int) -> bool:
        """True if there is a batch to take."""
        return self.levels.first() is not None

    def waiting(self) -> list[InflightRequest]:
        """Return all requests that are still wanted, in the order in which they will be taken."""
        return list(self.levels)


class _BatchCandidate(NamedTuple):
    """The next possible batch."""

    #: How many requests fit together, and the sum of their sizes.
    requests: int
    size: int
    #: How many of them make up the largest preferred size, or, with a delay, come before one that
    #: would exceed all of these; 0 if there are none.
    preferred: int
    oldest_ns: int
    #: The next waiting request cannot join them.
    is_closed: bool


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

    def pop_batch(self, now_ns: int) -> list[InflightRequest]:
        return self._pop(self.size_of_batch(self.levels, now_ns))

    def is_ready(self, now_ns: int) -> bool:
        return self.size_of_batch(self.levels, now_ns) > 0

    def size_of_batch(self, waiting: Iterable[InflightRequest], now_ns: int) -> int:
        """Return how many of these requests are to be executed together now."""
        self.due_ns = 0
        candidate = self._find_candidate(waiting)
        if candidate is None:
            return 0
        due_ns = candidate.oldest_ns + self._delay_ns
        if candidate.preferred and (now_ns < due_ns or not self._delay_ns):
            return candidate.preferred
        if candidate.is_closed or candidate.size >= self._target_size or now_ns >= due_ns:
            return candidate.requests
        self.due_ns = due_ns
        return 0

    def _find_candidate(self, waiting: Iterable[InflightRequest]) -> _BatchCandidate | None:
        """Find the next possible batch; None without a request.

        A request that is too large by itself was checked against another configuration, and goes
        alone.
        """
        count = size = preferred = oldest_ns = 0
        key: int | None = None
        for request in waiting:
            larger = size + request.elements
            if key is None:
                key, oldest_ns = request.row.batch_key, request.queued_ns
            if larger > self._max_batch_size or request.row.batch_key != key or count == MAX_ROWS:
                return _BatchCandidate(max(count, 1), size, preferred, oldest_ns, True)
            if larger > self._target_size and count and not preferred and self._delay_ns:
                # as in Triton: what would exceed all preferred sizes ends a batch without one, too
                preferred = count
            count, size = count + 1, larger
            oldest_ns = min(oldest_ns, request.queued_ns)
            if size in self._preferred:
                preferred = count
        return _BatchCandidate(count, size, preferred, oldest_ns, False) if count else None

    def _pop(self, count: int) -> list[InflightRequest]:
        """Take this many requests, which must be there."""
        batch: list[InflightRequest] = []
        while len(batch) < count:
            level = self.levels.first()
            assert level is not None
            batch.append(level.pop())
        return batch


def queue_of(config: dict[str, Any]) -> Queue:
    """Make the queue that a configuration asks for."""
    batching = config.get("dynamic_batching")
    if batching is None:
        return Queue({})
    return BatchingQueue(batching, config.get("max_batch_size") or 1)
