"""The slots of instances: the sequences that have one, and a backlog of those without one.

`Direct` gives each sequence a fixed place in the batch; `Oldest` batches the oldest requests. Slots
are asked for an instance's next batch when it has room. Knows no clock but the times that it gets.
"""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict, deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton.broker.scheduling.batching import BatchingQueue
from zmqtriton.broker.scheduling.instances import Instance
from zmqtriton_floor.wire import Correlation


@dataclass(slots=True, eq=False)
class Sequence:
    """A sequence: requests that one instance executes one after the other."""

    correlation: Correlation
    #: Waiting requests in their order; the first one is next.
    waiting: deque[InflightRequest] = field(default_factory=deque)
    #: The request that its stub has and that lacks its final answer.
    executing: InflightRequest | None = None
    #: The slots of the instance that executes it, and its place there; None while it waits for
    #: one.
    slots: SequenceSlots | None = None
    position: int = 0
    #: True once a stub has been given one of its requests.
    has_begun: bool = False
    #: True if a client may continue it, not only a model.
    is_clients: bool = False
    #: True once its last request was admitted; what comes next belongs to another sequence.
    is_complete: bool = False
    #: True while `Oldest` has its next request in a queue.
    is_offered: bool = False
    #: Time when it is refused if it still has no slot; 0: never.
    expires_ns: int = 0
    #: Others with the same id: the one that must end first, and the one that must wait.
    predecessor: Sequence | None = None
    successor: Sequence | None = None

    @property
    def is_idle(self) -> bool:
        return self.executing is None and not self.waiting

    @property
    def is_ready(self) -> bool:
        """True if its next request may be executed."""
        return self.executing is None and bool(self.waiting)

    def begin(self, request: InflightRequest) -> None:
        """Move the next request, which is sent to the stub, from `waiting` to `executing`."""
        assert request is self.waiting[0]
        self.waiting.popleft()
        self.executing = request
        self.has_begun = True
        self.is_offered = False


class SequenceSlots:
    """The slots of one instance."""

    #: True if empty places before the last one in a batch are filled with padding.
    has_places = False

    def __init__(self, serial: int, count: int) -> None:
        #: The serial of the instance.
        self.serial = serial
        self.sequences: list[Sequence | None] = [None] * count
        #: Time of the next question for a batch if nothing else happens; 0: never.
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
        """Return the next batch, the first requests of some sequences; [] if no batch is due."""
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
        key = min(ready, key=lambda request: request.queued_ns).batch_key
        return [request for request in ready if request.batch_key == key]


class Oldest(SequenceSlots):
    """Queues the first waiting request of each sequence like a plain request."""

    def __init__(self, serial: int, strategy: dict[str, Any], max_batch_size: int) -> None:
        super().__init__(serial, max(1, int(strategy.get("max_candidate_sequences", 0))))
        self._queue = BatchingQueue(strategy, max(1, max_batch_size))

    def choose_batch(self, now_ns: int) -> list[InflightRequest]:
        ready = [s for s in self.sequences if s is not None and s.is_ready and not s.is_offered]
        for sequence in sorted(ready, key=lambda one: one.waiting[0].queued_ns):
            sequence.is_offered = True
            self._queue.levels.add(sequence.waiting[0])
        batch = self._queue.pop_batch(now_ns)
        self.due_ns = self._queue.due_ns
        return batch


class SlotAssignment:
    """The slots of all instances of one generation, and the backlog of sequences."""

    def __init__(self, batching: dict[str, Any], max_batch_size: int) -> None:
        self._batching = batching
        self._max_batch_size = max_batch_size
        self._slots: dict[int, SequenceSlots] = {}
        #: Sequences without a slot; the first one gets the next free slot.
        self._backlog: OrderedDict[Sequence, None] = OrderedDict()
        #: Heap of the waits that a timeout ends, soonest first; some of these sequences may have a
        #: slot by now.
        self._expiries: list[tuple[int, int, Sequence]] = []
        self._order = itertools.count()

    def enqueue(self, sequence: Sequence) -> None:
        self._backlog[sequence] = None

    def enqueue_again(self, sequence: Sequence) -> None:
        """Put a sequence that has lost its slot in front of the others."""
        sequence.is_offered = False
        self._backlog[sequence] = None
        self._backlog.move_to_end(sequence, last=False)
        self._await_expiry(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Free the sequence's slot, or its place in the backlog."""
        self._backlog.pop(sequence, None)
        if sequence.slots is not None:
            sequence.slots.vacate(sequence)

    def remove_instance(self, instance: Instance) -> list[Sequence]:
        """Remove an instance; return the sequences in its slots, the first slot's last."""
        slots = self._slots.pop(instance.serial, None)
        if slots is None:
            return []
        removed = [s for s in reversed(slots.sequences) if s is not None]
        for sequence in removed:
            slots.vacate(sequence)
        return removed

    def sequences(self) -> Iterator[Sequence]:
        """Yield every sequence that has a slot or waits for one."""
        yield from [s for slots in self._slots.values() for s in slots.sequences if s is not None]
        yield from self._backlog

    # ------------------------------------------------------------ instances

    def next(
        self, instances: Collection[Instance], now_ns: int
    ) -> tuple[Instance, list[InflightRequest]] | None:
        """Return the next batch and its instance; the caller begins it."""
        self._fill(instances)
        for instance in sorted(instances, key=lambda one: len(one.open_requests)):
            slots = self._slots.get(instance.serial)
            batch = (
                slots.choose_batch(now_ns)
                if slots is not None and instance.startable_batches > 0
                else []
            )
            if batch:
                return instance, batch
        return None

    def has_ready(self, instance: Instance) -> bool:
        """Return True if a sequence of the instance has a request that may be executed."""
        slots = self._slots.get(instance.serial)
        return slots is not None and any(s is not None and s.is_ready for s in slots.sequences)

    def _fill(self, instances: Collection[Instance]) -> None:
        """Assign free slots to the sequences that have waited longest."""
        while self._backlog:
            all_slots = [self._slots_of(one.serial) for one in instances if one.is_open]
            places = ((slots.free(), slots.serial, slots) for slots in all_slots)
            best = min((place for place in places if place[0] >= 0), default=None)
            if best is None:
                return
            position, _, slots = best
            sequence, _ = self._backlog.popitem(last=False)
            slots.assign(sequence, position)

    def _slots_of(self, serial: int) -> SequenceSlots:
        """Return the slots of an instance; make them at the first call."""
        if serial not in self._slots:
            batching, size = self._batching, self._max_batch_size
            self._slots[serial] = (
                Oldest(serial, batching["oldest"], size)
                if "oldest" in batching
                else Direct(serial, batching.get("direct") or {}, size)
            )
        return self._slots[serial]

    # ----------------------------------------------------------------- time

    def limit_wait(self, sequence: Sequence, timeout_us: int, now_ns: int) -> None:
        """Let the sequence wait for a slot no longer than the timeout; 0: without limit."""
        if sequence.slots is None and timeout_us:
            at_ns = now_ns + timeout_us * 1000
            sequence.expires_ns = min(sequence.expires_ns or at_ns, at_ns)
            self._await_expiry(sequence)

    def _await_expiry(self, sequence: Sequence) -> None:
        if sequence.expires_ns:
            heapq.heappush(self._expiries, (sequence.expires_ns, next(self._order), sequence))

    @property
    def due_ns(self) -> int:
        """Return the time when a batch, or the end of a wait, is due without events; 0: never."""
        times = [slots.due_ns for slots in self._slots.values() if slots.due_ns]
        while self._expiries and not self._may_expire(self._expiries[0]):
            heapq.heappop(self._expiries)
        times += [at_ns for at_ns, _, _ in self._expiries[:1]]
        return min(times, default=0)

    def end_delays(self, now_ns: int) -> None:
        """Forget past times: an instance that still may not begin waits for an event."""
        for slots in self._slots.values():
            if slots.due_ns <= now_ns:
                slots.due_ns = 0

    def _may_expire(self, expiry: tuple[int, int, Sequence]) -> bool:
        at_ns, _, sequence = expiry
        return sequence.slots is None and sequence.expires_ns == at_ns and bool(sequence.waiting)

    def pop_expired(self, now_ns: int) -> Iterator[Sequence]:
        """Yield the sequences that have waited for a slot for too long."""
        while self._expiries and self._expiries[0][0] <= now_ns:
            expiry = heapq.heappop(self._expiries)
            if self._may_expire(expiry):
                yield expiry[2]
