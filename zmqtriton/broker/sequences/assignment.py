"""The sequences of a generation: which instance has which, and which have to wait for one.

A sequence has its slot from START to END, or until nothing has come for a while; what is executed
of it is executed one by one and in order. `sequencing` is the way from the core to here. Knows no
clock but what it is told; which requests are to be refused it says, and refuses none.
"""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict
from collections.abc import Collection, Iterator
from typing import Any

from zmqtriton.broker.memory.leases import BROKER
from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton.broker.scheduling.instances import Instance
from zmqtriton.broker.sequences.controls import SequenceControls
from zmqtriton.broker.sequences.losses import LostSequences
from zmqtriton.broker.sequences.slots import Sequence, SequenceSlots, slots_of
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument, Unavailable, ZmqTritonError
from zmqtriton_floor.wire import BatchedRequest, Correlation, Request

#: The requests that fill empty slots have ids from here on, beyond those of an ensemble's.
FIRST_PADDING_ID = 1 << 62
_NOT_EXECUTED = "one of its requests was not executed: "


class SequenceBatcher:
    """All of one generation."""

    def __init__(self, model: str, config: dict[str, Any]) -> None:
        batching = config["sequence_batching"]
        self._model = model
        self._batching = batching
        self._max_batch_size = int(config.get("max_batch_size", 0))
        self._idle_ns = int(batching.get("max_sequence_idle_microseconds", 1_000_000)) * 1000
        self._controls = SequenceControls(batching, is_batching=self._max_batch_size > 0)
        #: Each request is a sequence by itself, executed step by step.
        self.is_iterative = bool(batching.get("iterative_sequence"))
        self._own_ids = itertools.count(1)
        #: Stubs keep something of sequences for their models.
        self._has_states = bool(batching.get("state")) and not self.is_iterative
        self._ended: list[tuple[int, Correlation]] = []
        #: Those that take requests, and those of which END has come and that are not over.
        self._sequences: dict[Correlation, Sequence] = {}
        #: Without a slot, in the order in which they get one.
        self._backlog: OrderedDict[Sequence, None] = OrderedDict()
        #: Of these those that wait only so long, soonest first.
        self._expiries: list[tuple[int, int, Sequence]] = []
        self._order = itertools.count()
        #: With a slot and without a request, and since when; longest first.
        self._idle: OrderedDict[Sequence, int] = OrderedDict()
        #: Idle since this event.
        self._left: list[Sequence] = []
        self._slots: dict[int, SequenceSlots] = {}
        #: Those that are no more and may be asked for.
        self._lost = LostSequences(self._idle_ns)

    # ------------------------------------------------------------- requests

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._sequences)

    @property
    def has_open_client_sequence(self) -> bool:
        """Some client has one that it has not ended."""
        return any(s.is_clients and not s.is_complete for s in self._sequences.values())

    def knows(self, correlation: Correlation) -> bool:
        """Whether it is one that takes further requests."""
        sequence = self._sequences.get(correlation)
        return sequence is not None and not sequence.is_complete

    def assume_earlier_lost(self, cause: ZmqTritonError, first_id: int) -> None:
        """An earlier broker may have known sequences that this one does not."""
        self._lost.assume_earlier_lost(cause)
        self._own_ids = itertools.count(first_id)

    def check(self, row: Request) -> None:
        """Raises Triton's errors for what cannot be part of any sequence."""
        if row.batch_size > 1:
            raise InvalidArgument(
                f"inference request to model '{self._model}' must specify batch-size 1 due to "
                "requirements of sequence batcher"
            )
        if not row.correlation and not self.is_iterative:
            raise InvalidArgument(
                f"inference request to model '{self._model}' must specify a non-zero or "
                "non-empty correlation ID"
            )
        if row.correlation and self.is_iterative and not row.flags & wire.SEQUENCE_START:
            raise InvalidArgument(self._must_start(row.correlation))

    def begin_steps(self, request: InflightRequest) -> Sequence:
        """It becomes a sequence by itself, which ends when it is answered and not before."""
        row = request.row
        correlation = row.correlation or next(self._own_ids)
        flags = row.flags & ~wire.SEQUENCE_END | wire.SEQUENCE_START
        request.row = row._replace(flags=flags, correlation=correlation)
        request.sequence = sequence = Sequence(correlation)
        sequence.is_complete = True
        sequence.waiting.append(request)
        self._backlog[sequence] = None
        return sequence

    def reschedule(self, sequence: Sequence, request: InflightRequest) -> None:
        """The next step of it."""
        sequence.executing = None
        sequence.waiting.append(request)

    def recall(self, request: InflightRequest) -> None:
        """Its stub has died before the first step of it began: it begins elsewhere."""
        sequence = request.sequence
        if sequence is not None:
            sequence.executing, sequence.has_begun = None, False
            sequence.waiting.appendleft(request)

    def admit(self, request: InflightRequest, now_ns: int, warnings: list[str]) -> None:
        """Raises Triton's errors, for what was checked."""
        row = request.row
        if self.is_iterative:
            self._limit_wait(self.begin_steps(request), row.timeout_us, now_ns)
            return
        sequence = self._find(request, now_ns, warnings)
        sequence.waiting.append(request)
        sequence.is_complete = bool(row.flags & wire.SEQUENCE_END)
        request.sequence = sequence
        self._idle.pop(sequence, None)
        self._limit_wait(sequence, row.timeout_us, now_ns)

    def _limit_wait(self, sequence: Sequence, timeout_us: int, now_ns: int) -> None:
        """It waits for a slot for no longer than a request of it may."""
        if sequence.slots is None and timeout_us:
            at_ns = now_ns + timeout_us * 1000
            sequence.expires_ns = min(sequence.expires_ns or at_ns, at_ns)
            self._await_expiry(sequence)

    def _await_expiry(self, sequence: Sequence) -> None:
        if sequence.expires_ns:
            heapq.heappush(self._expiries, (sequence.expires_ns, next(self._order), sequence))

    def _find(self, request: InflightRequest, now_ns: int, warnings: list[str]) -> Sequence:
        correlation = request.row.correlation
        is_start = bool(request.row.flags & wire.SEQUENCE_START)
        sequence = self._sequences.get(correlation)
        if sequence is not None and not sequence.is_complete:
            if is_start:
                warnings.append(
                    f"sequence {correlation} for model '{self._model}' has a conflict. The "
                    "previous sequence did not end before this sequence start. Previous sequence "
                    "will be terminated early."
                )
            return sequence
        if not is_start:
            raise self._unknown(correlation, now_ns)
        self._lost.drop(correlation)
        new = self._sequences[correlation] = Sequence(correlation)
        if sequence is None:
            self._backlog[new] = None
        else:
            sequence.successor, new.predecessor = new, sequence
        return new

    def _must_start(self, correlation: Correlation) -> str:
        return (
            f"inference request for sequence {correlation} to model '{self._model}' must specify "
            "the START flag on the first request of the sequence"
        )

    def _unknown(self, correlation: Correlation, now_ns: int) -> ZmqTritonError:
        text = self._must_start(correlation)
        cause = self._lost.find_cause(correlation, now_ns)
        if cause is None:
            return InvalidArgument(text)
        return type(cause)(f"{text}, because an earlier one was lost: {cause.text}")

    def finish_request(self, request: InflightRequest) -> None:
        """It has had its final answer."""
        sequence, request.sequence = request.sequence, None
        if sequence is None:
            return
        if sequence.executing is request:
            sequence.executing = None
        else:
            sequence.waiting.remove(request)
        if sequence.is_idle and sequence.is_complete:
            self._end(sequence)
        elif sequence.is_idle:
            self._left.append(sequence)

    def _end(self, sequence: Sequence) -> None:
        """Its slot is free, and its id too."""
        self._backlog.pop(sequence, None)
        self._idle.pop(sequence, None)
        if sequence.slots is not None:
            if self._has_states and sequence.has_begun:
                self._ended.append((sequence.slots.serial, sequence.correlation))
            sequence.slots.vacate(sequence)
        later, earlier = sequence.successor, sequence.predecessor
        if self._sequences.get(sequence.correlation) is sequence:
            del self._sequences[sequence.correlation]
            if earlier is not None:  # which the next one has to wait for
                self._sequences[sequence.correlation] = earlier
        sequence.successor = sequence.predecessor = None
        if earlier is not None:
            earlier.successor = later
        if later is not None:
            later.predecessor = earlier
            if earlier is None:
                self._backlog[later] = None

    def abort_after(self, request: InflightRequest, error: ZmqTritonError) -> list[InflightRequest]:
        """It is not executed: those after it, whose model would lack what it brings."""
        sequence = request.sequence
        if sequence is None or sequence.executing is request:
            return []
        rest = [other for other in sequence.waiting if other is not request]
        self._abort(sequence, InvalidArgument(_NOT_EXECUTED + error.text))
        return rest

    def close_after_refusal(self, correlation: Correlation, error: ZmqTritonError) -> None:
        """One of it was refused before it came here: what is here is executed, and nothing that
        comes later, until the sequence starts again."""
        sequence = self._sequences.get(correlation)
        if sequence is None or not sequence.is_complete:
            self._lost.add(correlation, InvalidArgument(_NOT_EXECUTED + error.text))
        self.close(correlation)

    def close(self, correlation: Correlation) -> None:
        """What has come of it is executed, and then it is over as if its END had come."""
        sequence = self._sequences.get(correlation)
        if sequence is not None and not sequence.is_complete:
            sequence.is_complete = True
            if sequence.is_idle:
                self._end(sequence)

    def _abort(self, sequence: Sequence, cause: ZmqTritonError) -> None:
        """Nothing of it that waits is executed; whoever called refuses that."""
        for request in sequence.waiting:
            request.sequence = None
        sequence.waiting.clear()
        sequence.is_complete = True
        if self._sequences.get(sequence.correlation) is sequence:
            self._lost.add(sequence.correlation, cause)
        if sequence.executing is None:
            self._end(sequence)

    def waiting(self) -> list[InflightRequest]:
        """All requests that wait, oldest first."""
        found = [request for sequence in self._all() for request in sequence.waiting]
        return sorted(found, key=lambda request: request.arrived_ns)

    def _all(self) -> Iterator[Sequence]:
        slotted = [s for slots in self._slots.values() for s in slots.sequences if s is not None]
        for first in [*slotted, *self._backlog]:
            later: Sequence | None = first
            while later is not None:
                yield later
                later = later.successor

    # ------------------------------------------------------------ instances

    def remove_instance(self, instance: Instance, cause: ZmqTritonError) -> list[InflightRequest]:
        """Its stub is dead, and with it what its sequences have become: those requests of them
        that were never executed. Sequences that have not begun begin elsewhere."""
        slots = self._slots.pop(instance.serial, None)
        refused: list[InflightRequest] = []
        if slots is None:
            return refused
        cause = Unavailable(cause.text)
        for sequence in [s for s in reversed(slots.sequences) if s is not None]:
            slots.vacate(sequence)
            if sequence.has_begun:
                # What has run is the instance's own, and known to whoever calls.
                refused += [request for request in sequence.waiting if not request.has_run]
                self._abort(sequence, cause)
            else:
                sequence.is_offered = False
                self._backlog[sequence] = None
                self._backlog.move_to_end(sequence, last=False)
                self._await_expiry(sequence)
        return refused

    def next(
        self, instances: Collection[Instance], now_ns: int
    ) -> tuple[Instance, list[InflightRequest]] | None:
        """Which instance gets what now."""
        self.end_idle(now_ns)
        self._fill(instances)
        for instance in sorted(instances, key=lambda one: len(one.open_requests)):
            slots = self._slots.get(instance.serial)
            batch = (
                slots.pop_batch(now_ns)
                if slots is not None and instance.startable_batches > 0
                else []
            )
            if batch:
                return instance, batch
        return None

    def has_ready(self, instance: Instance) -> bool:
        """Whether one of its sequences has a request that may be executed."""
        slots = self._slots.get(instance.serial)
        return slots is not None and any(s is not None and s.is_ready for s in slots.sequences)

    def end_idle(self, now_ns: int) -> None:
        """Ends those that have been idle for too long."""
        for sequence in self._left:
            if sequence.is_idle and sequence.slots is not None:
                self._idle[sequence] = now_ns
        self._left.clear()
        while self._idle:
            sequence, since_ns = next(iter(self._idle.items()))
            if now_ns < since_ns + self._idle_ns:
                return
            self._end(sequence)

    def _fill(self, instances: Collection[Instance]) -> None:
        """Gives free slots to those that have waited longest."""
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

    def pop_ended(self) -> list[tuple[int, BatchedRequest]]:
        """What stubs are told of sequences that are over, before they are given more of any."""
        over, self._ended = self._ended, []
        return [
            (stub, BatchedRequest(0, BROKER, 0, wire.SEQUENCE_OVER, sequence, 0, 0))
            for stub, sequence in over
        ]

    def works(
        self, requests: list[InflightRequest], number: int, numbers: Iterator[int]
    ) -> list[tuple[BatchedRequest, bytes]]:
        """What the stub is sent for a batch, with something in each slot before its last."""
        rows: list[tuple[BatchedRequest, bytes]] = []
        for request in requests:
            sequence = request.sequence
            assert sequence is not None
            assert sequence.slots is not None
            while sequence.slots.has_places and len(rows) < sequence.position:
                filler = BatchedRequest(
                    number, BROKER, FIRST_PADDING_ID | next(numbers), wire.PADDING, 0, 0, 0
                )
                rows.append((filler, self._controls.build_padding_body(request.body)))
            rows.append((request.work(number), self._controls.tell(request.row, request.body)))
        return rows

    # ----------------------------------------------------------------- time

    @property
    def due_ns(self) -> int:
        """When something happens here though nothing else does; 0: then never."""
        times = [slots.due_ns for slots in self._slots.values() if slots.due_ns]
        while self._expiries and not self._may_expire(self._expiries[0]):
            heapq.heappop(self._expiries)
        times += [at_ns for at_ns, _, _ in self._expiries[:1]]
        if self._idle:
            times.append(next(iter(self._idle.values())) + self._idle_ns)
        return min(times, default=0)

    def _may_expire(self, expiry: tuple[int, int, Sequence]) -> bool:
        at_ns, _, sequence = expiry
        return sequence.slots is None and sequence.expires_ns == at_ns and bool(sequence.waiting)

    def pop_expired(self, now_ns: int) -> list[InflightRequest]:
        """Requests of sequences that have waited for a slot for too long."""
        refused: list[InflightRequest] = []
        while self._expiries and self._expiries[0][0] <= now_ns:
            expiry = heapq.heappop(self._expiries)
            if self._may_expire(expiry):
                _, _, sequence = expiry
                refused += sequence.waiting
                self._abort(sequence, InvalidArgument("it waited too long for a sequence slot"))
                self._lost.drop(sequence.correlation)
        return refused
