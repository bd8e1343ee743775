"""The sequences of one instance: which of their requests go into its next execute().

`Direct` gives each sequence a fixed place in the batch; `Oldest` batches the oldest requests. Asked
when the instance has room. They know no clock but the times they are given.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton.broker.scheduling.batching import BatchingQueue
from zmqtriton_floor.wire import Correlation


class Sequence:
    """Requests that one instance executes one after the other."""

    __slots__ = (
        "correlation",
        "executing",
        "expires_ns",
        "has_begun",
        "is_clients",
        "is_complete",
        "is_offered",
        "position",
        "predecessor",
        "slots",
        "successor",
        "waiting",
    )

    def __init__(self, correlation: Correlation) -> None:
        self.correlation = correlation
        #: In order; the first is next.
        self.waiting: deque[InflightRequest] = deque()
        #: The request that its stub has and that lacks its final answer.
        self.executing: InflightRequest | None = None
        #: The slots of the instance that executes it, and its place there; None while it waits for
        #: one.
        self.slots: SequenceSlots | None = None
        self.position = 0
        #: A stub has been given one of its requests.
        self.has_begun = False
        #: A client may go on with it, not only a model that asks.
        self.is_clients = False
        #: Its last request was admitted; what comes next belongs to another sequence.
        self.is_complete = False
        #: `Oldest` has its next request.
        self.is_offered = False
        #: When it is refused if it still has no slot; 0 is never.
        self.expires_ns = 0
        #: Others with the same id: the one that must end first, and the one that must wait.
        self.predecessor: Sequence | None = None
        self.successor: Sequence | None = None

    @property
    def is_idle(self) -> bool:
        return self.executing is None and not self.waiting

    @property
    def is_ready(self) -> bool:
        """True if its next request may be executed."""
        return self.executing is None and bool(self.waiting)

    def begin(self, request: InflightRequest) -> None:
        """Note that its next request goes to its stub."""
        assert request is self.waiting[0]
        self.waiting.popleft()
        self.executing = request
        self.has_begun = True
        self.is_offered = False


class SequenceSlots:
    """The slots of one instance."""

    #: Empty places before the last one in a batch are filled with padding.
    has_places = False

    def __init__(self, serial: int, count: int) -> None:
        #: The serial of the instance.
        self.serial = serial
        self.sequences: list[Sequence | None] = [None] * count
        #: When to ask for a batch again though nothing else happens; 0 is never.
        self.due_ns = 0

    def free(self) -> int:
        """Return the first free place, or -1."""
        try:
            return self.sequences.index(None)
        except ValueError:
            return -1

    def assign(self, sequence: Sequence, position: int) -> None:
        self.sequences[position] = sequence
        sequence.slots, sequence.position = self, position

    def vacate(self, sequence: Sequence) -> None:
        self.sequences[sequence.position] = None
        sequence.slots = None

    def choose_batch(self, now_ns: int) -> list[InflightRequest]:
        """Return the next batch, the first requests of some sequences, or [] without one yet."""
        raise NotImplementedError


class Direct(SequenceSlots):
    """Executes all ready requests together, each in its place. May wait until there are enough."""

    has_places = True

    def __init__(self, serial: int, strategy: dict[str, Any], max_batch_size: int) -> None:
        super().__init__(serial, max(1, max_batch_size))
        self._delay_ns = int(strategy.get("max_queue_delay_microseconds", 0)) * 1000
        self._enough = float(strategy.get("minimum_slot_utilization", 0)) * len(self.sequences)

    def choose_batch(self, now_ns: int) -> list[InflightRequest]:
        self.due_ns = 0
        ready = [s.waiting[0] for s in self.sequences if s is not None and s.is_ready]
        if not ready:
            return []
        if len(ready) < self._enough:
            due_ns = min(request.queued_ns for request in ready) + self._delay_ns
            if now_ns < due_ns:
                self.due_ns = due_ns
                return []
        # Requests with other shapes than the one that has waited longest go another time.
        key = min(ready, key=lambda request: request.queued_ns).row.batch_key
        return [request for request in ready if request.row.batch_key == key]


class Oldest(SequenceSlots):
    """Queues one request of each sequence, like plain requests."""

    def __init__(self, serial: int, strategy: dict[str, Any], max_batch_size: int) -> None:
        super().__init__(serial, max(1, int(strategy.get("max_candidate_sequences", 0))))
        self._queue = BatchingQueue(strategy, max(1, max_batch_size))

    def choose_batch(self, now_ns: int) -> list[InflightRequest]:
        ready = [s for s in self.sequences if s is not None and s.is_ready and not s.is_offered]
        for sequence in sorted(ready, key=lambda one: one.waiting[0].queued_ns):
            sequence.is_offered = True
            self._queue.levels.of(sequence.waiting[0]).add(sequence.waiting[0])
        batch = self._queue.pop_batch(now_ns)
        self.due_ns = self._queue.due_ns
        return batch


def slots_of(serial: int, batching: dict[str, Any], max_batch_size: int) -> SequenceSlots:
    """Make the slots of an instance, as a configuration asks for."""
    if "oldest" in batching:
        return Oldest(serial, batching["oldest"], max_batch_size)
    return Direct(serial, batching.get("direct") or {}, max_batch_size)
