"""The queues of a generation: which of the requests that wait go together into one execute().

A `Queue` hands out one request at a time; a `BatchingQueue` follows `dynamic_batching` of the
configuration. Both are asked only when an instance is idle. They know no clock but what they are
told.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from zmqtriton.broker.inflight import Inflight, RequestState
from zmqtriton_floor.wire import MAX_ROWS


class Queue:
    """First come, first served, one request per execute()."""

    def __init__(self) -> None:
        #: Answered ones stay until they reach the head.
        self._requests: deque[Inflight] = deque()
        #: When `take` is to be asked again though nothing else happens; 0: then never.
        self.due_ns = 0

    def add(self, request: Inflight) -> None:
        self._requests.append(request)

    def put_back(self, requests: list[Inflight]) -> None:
        """They had been taken, in this order, and were not executed: they go first."""
        self._requests.extendleft(reversed(requests))

    def take(self, now_ns: int) -> list[Inflight]:
        """The next batch, or [] if there is none yet."""
        return self._pop(1) if self._has_head() else []

    def waiting(self) -> list[Inflight]:
        """All that are still wanted, oldest first."""
        return [r for r in self._requests if r.state is RequestState.QUEUED]

    def shrink(self, wanted: int) -> None:
        """Forgets answered ones where they are many beside those that are wanted."""
        if len(self._requests) > 2 * wanted + 64:
            self._requests = deque(self.waiting())

    def _has_head(self) -> bool:
        requests = self._requests
        while requests and requests[0].state is not RequestState.QUEUED:
            requests.popleft()
        return bool(requests)

    def _pop(self, count: int) -> list[Inflight]:
        """The oldest that are wanted; there must be so many."""
        batch: list[Inflight] = []
        while len(batch) < count:
            request = self._requests.popleft()
            if request.state is RequestState.QUEUED:
                batch.append(request)
        return batch


class BatchingQueue(Queue):
    """Waits for a preferred size, but no longer than the oldest request may be delayed.

    A batch ends before a request that would make it too large or that has another key: order is
    kept, and no request is split.
    """

    def __init__(self, batching: dict[str, Any], max_batch_size: int) -> None:
        super().__init__()
        self._most = max_batch_size
        sizes = batching.get("preferred_batch_size") or [max_batch_size]
        self._preferred = frozenset(sizes)
        self._enough = max(sizes)
        self._delay_ns = int(batching.get("max_queue_delay_microseconds", 0)) * 1000

    def take(self, now_ns: int) -> list[Inflight]:
        self.due_ns = 0
        if not self._has_head():
            return []
        count, size, preferred, is_closed = self._look()
        due_ns = self._requests[0].arrived_ns + self._delay_ns
        if preferred and (now_ns < due_ns or not self._delay_ns):
            return self._pop(preferred)
        if is_closed or size >= self._enough or now_ns >= due_ns:
            return self._pop(count)
        self.due_ns = due_ns
        return []

    def _look(self) -> tuple[int, int, int, bool]:
        """How many requests fit together, their size, how many of them make up the largest
        preferred size, and whether the next one that waits cannot join them."""
        count = size = preferred = 0
        key = self._requests[0].row.batch_key
        for request in self._requests:
            if request.state is not RequestState.QUEUED:
                continue
            larger = size + request.elements
            if larger > self._most or request.row.batch_key != key or count == MAX_ROWS:
                # One that is too large alone was checked against another configuration.
                return max(count, 1), size, preferred, True
            count, size = count + 1, larger
            if size in self._preferred:
                preferred = count
        return count, size, preferred, False


def queue_of(config: dict[str, Any]) -> Queue:
    """The one that a configuration asks for."""
    batching = config.get("dynamic_batching")
    most = config.get("max_batch_size", 0)
    return BatchingQueue(batching, most) if batching is not None and most > 0 else Queue()
