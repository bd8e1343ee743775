"""Assigns the slots of instances to sequences; sequences without one wait in a backlog."""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict
from collections.abc import Collection, Iterator
from typing import Any

from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton.broker.scheduling.instances import Instance
from zmqtriton.broker.sequences.slots import Sequence, SequenceSlots, slots_of


class SlotAssignment:
    """The slots of all instances of one generation, and the backlog of sequences."""

    def __init__(self, batching: dict[str, Any], max_batch_size: int) -> None:
        self._batching = batching
        self._max_batch_size = max_batch_size
        self._slots: dict[int, SequenceSlots] = {}
        #: Sequences without a slot, in the order in which they get one.
        self._backlog: OrderedDict[Sequence, None] = OrderedDict()
        #: Those of the backlog whose requests have a timeout, soonest first.
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
        """Every sequence that has a slot or waits for one."""
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
            best: tuple[int, int, SequenceSlots] | None = None
            for instance in instances:
                if not instance.is_open:
                    continue
                slots = self._slots.get(instance.serial)
                if slots is None:
                    slots = slots_of(instance.serial, self._batching, self._max_batch_size)
                    self._slots[instance.serial] = slots
                position = slots.free()
                if position >= 0 and (best is None or (position, instance.serial) < best[:2]):
                    best = (position, instance.serial, slots)
            if best is None:
                return
            sequence, _ = self._backlog.popitem(last=False)
            best[2].assign(sequence, best[0])

    # ----------------------------------------------------------------- time

    def limit_wait(self, sequence: Sequence, timeout_us: int, now_ns: int) -> None:
        """Let the sequence wait for a slot no longer than the timeout; 0 is no limit."""
        if sequence.slots is None and timeout_us:
            at_ns = now_ns + timeout_us * 1000
            sequence.expires_ns = min(sequence.expires_ns or at_ns, at_ns)
            self._await_expiry(sequence)

    def _await_expiry(self, sequence: Sequence) -> None:
        if sequence.expires_ns:
            heapq.heappush(self._expiries, (sequence.expires_ns, next(self._order), sequence))

    @property
    def due_ns(self) -> int:
        """When the next batch may be due or a wait expires, with no other event; 0 if never."""
        times = [slots.due_ns for slots in self._slots.values() if slots.due_ns]
        while self._expiries and not self._may_expire(self._expiries[0]):
            heapq.heappop(self._expiries)
        times += [at_ns for at_ns, _, _ in self._expiries[:1]]
        return min(times, default=0)

    def _may_expire(self, expiry: tuple[int, int, Sequence]) -> bool:
        at_ns, _, sequence = expiry
        return sequence.slots is None and sequence.expires_ns == at_ns and bool(sequence.waiting)

    def pop_expired(self, now_ns: int) -> Iterator[Sequence]:
        """Sequences that have waited for a slot for too long."""
        while self._expiries and self._expiries[0][0] <= now_ns:
            expiry = heapq.heappop(self._expiries)
            if self._may_expire(expiry):
                yield expiry[2]
