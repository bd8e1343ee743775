"""The sequences of a generation, from their START to their END or their idle timeout.

The requests of a sequence are executed one by one and in order, all on the instance whose slot it
has. Methods return the requests that must be refused; the caller refuses them. If a sequence was
not ended by its client, the error of its next request names the cause.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from typing import Any

from zmqtriton.broker.requests.inflight import Batch, InflightRequest
from zmqtriton.broker.scheduling.instances import Instance
from zmqtriton.broker.sequences.controls import SequenceControls
from zmqtriton.broker.sequences.slots import Sequence, SlotAssignment
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument, Unavailable, ZmqTritonError

_NOT_EXECUTED = "one of its requests was not executed: "
#: Maximum number of lost sequences whose causes are kept.
MAX_CAUSES = 10_000


class LostSequences:
    """The lost sequences of one generation."""

    def __init__(self, idle_ns: int) -> None:
        self._idle_ns = idle_ns
        self._causes: OrderedDict[wire.Correlation, ZmqTritonError] = OrderedDict()
        #: Error of sequences that only an earlier broker knew, and a function that returns the time
        #: since when all its clients are here again; None if there was no earlier broker.
        self._earlier: tuple[ZmqTritonError, Callable[[], int]] | None = None

    def assume_earlier_lost(self, cause: ZmqTritonError, recovered_ns: Callable[[], int]) -> None:
        """Treat unknown sequences as lost, since an earlier broker may have known them.

        `recovered_ns` returns the time since when all its clients are here again, 0 before. A
        client may have left a sequence idle in between, so unknown ones count as lost for another
        `idle_ns`.
        """
        self._earlier = cause, recovered_ns

    def add(self, correlation: wire.Correlation, cause: ZmqTritonError) -> None:
        self._causes[correlation] = cause
        if len(self._causes) > MAX_CAUSES:
            self._causes.popitem(last=False)

    def drop(self, correlation: wire.Correlation) -> None:
        """Forget a lost sequence: the error of its next request need not explain the loss."""
        self._causes.pop(correlation, None)

    def find_cause(self, correlation: wire.Correlation, now_ns: int) -> ZmqTritonError | None:
        """Return why a sequence was lost; None if it is not known to have existed."""
        cause = self._causes.get(correlation)
        if cause is None and self._earlier is not None:
            forgotten, recovered_ns = self._earlier
            since_ns = recovered_ns()
            if not since_ns or now_ns < since_ns + self._idle_ns:
                self.add(correlation, cause := forgotten)
        return cause


class SequenceBatcher:
    """All sequences of one generation."""

    def __init__(self, model: str, config: dict[str, Any]) -> None:
        batching = config["sequence_batching"]
        self._model = model
        self._max_batch_size = int(config.get("max_batch_size", 0))
        self._idle_ns = int(batching.get("max_sequence_idle_microseconds", 1_000_000)) * 1000
        self._controls = SequenceControls(batching, is_batching=self._max_batch_size > 0)
        #: True if each request is a sequence by itself, executed step by step.
        self.is_iterative = bool(batching.get("iterative_sequence"))
        self._own_ids = itertools.count(1)
        #: True if stubs keep states of sequences for their models.
        self._has_states = bool(batching.get("state")) and not self.is_iterative
        self._ended: list[tuple[int, wire.Correlation]] = []
        #: Sequences that take requests, and sequences that have had their END and are not finished.
        self._sequences: dict[wire.Correlation, Sequence] = {}
        #: The sequence of each request, until that is answered.
        self._by_request: dict[InflightRequest, Sequence] = {}
        self.assignment = SlotAssignment(batching, self._max_batch_size)
        #: Sequences with a slot and without a request, and since when; longest idle first.
        self._idle: OrderedDict[Sequence, int] = OrderedDict()
        #: Sequences that became idle since the last end_idle(), which knows the time.
        self._left: list[Sequence] = []
        #: Sequences that have ended without an END; clients may send further requests for them.
        self._lost = LostSequences(self._idle_ns)

    # ------------------------------------------------------------- requests

    @property
    def count(self) -> int:
        """Return the number of sequences that are not finished."""
        return len(self._sequences)

    @property
    def has_open_client_sequence(self) -> bool:
        """True if a client has a sequence that it has not ended."""
        return any(s.is_clients and not s.is_complete for s in self._sequences.values())

    def knows(self, correlation: wire.Correlation) -> bool:
        """True if a sequence with this id accepts further requests."""
        sequence = self._sequences.get(correlation)
        return sequence is not None and not sequence.is_complete

    def assume_earlier_lost(
        self, cause: ZmqTritonError, first_id: int, recovered_ns: Callable[[], int]
    ) -> None:
        """Treat unknown sequences as lost, and number own ones from `first_id` on."""
        self._lost.assume_earlier_lost(cause, recovered_ns)
        self._own_ids = itertools.count(first_id)

    def check(self, request: InflightRequest) -> None:
        """Raise Triton's errors for a request that cannot be part of any sequence."""
        if request.elements > 1:
            raise InvalidArgument(
                f"inference request to model '{self._model}' must specify batch-size 1 due to "
                "requirements of sequence batcher"
            )
        if not request.correlation and not self.is_iterative:
            raise InvalidArgument(
                f"inference request to model '{self._model}' must specify a non-zero or "
                "non-empty correlation ID"
            )
        is_start = request.flags & wire.SEQUENCE_START
        if request.correlation and self.is_iterative and not is_start:
            raise InvalidArgument(_must_start(self._model, request.correlation))

    def begin_steps(self, request: InflightRequest) -> Sequence:
        """Make the request a sequence by itself, which ends when it is answered and not before."""
        request.correlation = request.correlation or next(self._own_ids)
        request.flags = request.flags & ~wire.SEQUENCE_END | wire.SEQUENCE_START
        self._by_request[request] = sequence = Sequence(request.correlation)
        sequence.is_complete = True
        sequence.waiting.append(request)
        self.assignment.enqueue(sequence)
        return sequence

    def reschedule(self, request: InflightRequest) -> bool:
        """Queue the next step of a request; False if an earlier broker has begun the request."""
        sequence = self._by_request.get(request)
        if sequence is None:
            return False
        sequence.executing = None
        sequence.waiting.append(request)
        return True

    def recall(self, request: InflightRequest) -> None:
        """Let another instance begin a request whose stub has died before its first step."""
        sequence = self._by_request.get(request)
        if sequence is not None:
            sequence.executing, sequence.has_begun = None, False
            sequence.waiting.appendleft(request)

    def admit(
        self, request: InflightRequest, now_ns: int, warnings: list[str], *, is_clients: bool
    ) -> None:
        """Admit a request that was checked. Raises Triton's errors."""
        if self.is_iterative:
            sequence = self.begin_steps(request)
        else:
            self._by_request[request] = sequence = self._find(request, now_ns, warnings)
            sequence.waiting.append(request)
            sequence.is_complete = bool(request.flags & wire.SEQUENCE_END)
            self._idle.pop(sequence, None)
        sequence.is_clients |= is_clients
        self.assignment.limit_wait(sequence, request.timeout_us, now_ns)

    def _find(self, request: InflightRequest, now_ns: int, warnings: list[str]) -> Sequence:
        correlation = request.correlation
        is_start = bool(request.flags & wire.SEQUENCE_START)
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
            text = _must_start(self._model, correlation)
            cause = self._lost.find_cause(correlation, now_ns)
            if cause is None:
                raise InvalidArgument(text)
            raise type(cause)(f"{text}, because an earlier one was lost: {cause.text}")
        self._lost.drop(correlation)
        new = self._sequences[correlation] = Sequence(correlation)
        if sequence is None:
            self.assignment.enqueue(new)
        else:
            sequence.successor, new.predecessor = new, sequence
        return new

    def finish_request(self, request: InflightRequest) -> None:
        """Take a request with a final answer out of its sequence, which may end or become idle."""
        sequence = self._by_request.pop(request, None)
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
        """End a sequence: its slot and its id are free."""
        self._idle.pop(sequence, None)
        if sequence.slots is not None and self._has_states and sequence.has_begun:
            self._ended.append((sequence.slots.serial, sequence.correlation))
        self.assignment.remove(sequence)
        later, earlier = sequence.successor, sequence.predecessor
        if self._sequences.get(sequence.correlation) is sequence:
            del self._sequences[sequence.correlation]
            if earlier is not None:  # the next sequence with this id waits for this one
                self._sequences[sequence.correlation] = earlier
        sequence.successor = sequence.predecessor = None
        if earlier is not None:
            earlier.successor = later
        if later is not None:
            later.predecessor = earlier
            if earlier is None:
                self.assignment.enqueue(later)

    def abort_after(self, request: InflightRequest, error: ZmqTritonError) -> list[InflightRequest]:
        """Abort the sequence of a request that was not executed; return its other waiting requests.

        The model would miss the data of that request.
        """
        sequence = self._by_request.get(request)
        if sequence is None or sequence.executing is request:
            return []
        rest = [other for other in sequence.waiting if other is not request]
        self._abort(sequence, InvalidArgument(_NOT_EXECUTED + error.text))
        return rest

    def close_after_refusal(self, correlation: wire.Correlation, error: ZmqTritonError) -> None:
        """Close a sequence after a request of it was refused before it was queued.

        Queued requests still run; later ones are refused until the sequence starts again.
        """
        sequence = self._sequences.get(correlation)
        if sequence is None or not sequence.is_complete:
            self._lost.add(correlation, InvalidArgument(_NOT_EXECUTED + error.text))
        self.close(correlation)

    def close(self, correlation: wire.Correlation) -> None:
        """Execute the waiting requests of a sequence, and then end it, as after an END."""
        sequence = self._sequences.get(correlation)
        if sequence is not None and not sequence.is_complete:
            sequence.is_complete = True
            if sequence.is_idle:
                self._end(sequence)

    def _abort(self, sequence: Sequence, cause: ZmqTritonError) -> None:
        """Remove all waiting requests of a sequence; the caller refuses them."""
        for request in sequence.waiting:
            del self._by_request[request]
        sequence.waiting.clear()
        sequence.is_complete = True
        if self._sequences.get(sequence.correlation) is sequence:
            self._lost.add(sequence.correlation, cause)
        if sequence.executing is None:
            self._end(sequence)

    def waiting(self) -> list[InflightRequest]:
        """Return all waiting requests, oldest first."""
        requests: list[InflightRequest] = []
        for first in self.assignment.sequences():
            later: Sequence | None = first
            while later is not None:
                requests += later.waiting
                later = later.successor
        return sorted(requests, key=lambda request: request.arrived_ns)

    # ------------------------------------------------------------ instances

    def remove_instance(self, instance: Instance, cause: ZmqTritonError) -> list[InflightRequest]:
        """Remove a dead stub, and return the requests of its sequences that were never executed.

        The state of these sequences is lost. Sequences that have not begun are assigned elsewhere.
        """
        refused: list[InflightRequest] = []
        cause = Unavailable(cause.text)
        for sequence in self.assignment.remove_instance(instance):
            if sequence.has_begun:
                # What has been executed is counted as the instance's own, and the caller knows it.
                refused += [request for request in sequence.waiting if not request.has_run]
                self._abort(sequence, cause)
            else:
                self.assignment.enqueue_again(sequence)
        return refused

    def next(
        self, instances: Collection[Instance], now_ns: int
    ) -> tuple[Instance, list[InflightRequest]] | None:
        """Return the next batch and its instance."""
        self.end_idle(now_ns)
        chosen = self.assignment.next(instances, now_ns)
        for request in chosen[1] if chosen is not None else ():
            self._by_request[request].begin(request)
        return chosen

    def complete(
        self, batch: Batch, works: list[tuple[wire.BatchedRequest, bytes]], numbers: Iterator[int]
    ) -> list[tuple[wire.BatchedRequest, bytes]]:
        """Return a batch for its stub: with control tensors, and padding in empty slots."""
        controls, rows = self._controls, list[tuple[wire.BatchedRequest, bytes]]()
        for request, (row, body) in zip(batch.requests, works, strict=True):
            sequence = self._by_request[request]
            has_places = sequence.slots is not None and sequence.slots.has_places
            while has_places and len(rows) < sequence.position:
                rows.append(controls.build_padding(body, batch.number, numbers))
            rows.append((row, controls.tell(row, body)))
        batch.fillers = len(rows) - len(works)
        return rows

    def end_idle(self, now_ns: int) -> None:
        """End sequences that have been idle for too long."""
        for sequence in self._left:
            if sequence.is_idle and sequence.slots is not None:
                self._idle[sequence] = now_ns
        self._left.clear()
        while self._idle:
            sequence, since_ns = next(iter(self._idle.items()))
            if now_ns < since_ns + self._idle_ns:
                return
            self._end(sequence)

    def pop_ended(self) -> list[tuple[int, wire.BatchedRequest]]:
        """Remove and return the messages about ended sequences, due before any new batch."""
        over, self._ended = self._ended, []
        return [
            (stub, wire.BatchedRequest(0, wire.BROKER, 0, wire.SEQUENCE_OVER, sequence, 0, 0))
            for stub, sequence in over
        ]

    # ----------------------------------------------------------------- time

    @property
    def due_ns(self) -> int:
        """Return the time when work is due here without other events; 0: never."""
        times = [self.assignment.due_ns] if self.assignment.due_ns else []
        if self._idle:
            times.append(next(iter(self._idle.values())) + self._idle_ns)
        return min(times, default=0)

    def pop_expired(self, now_ns: int) -> list[InflightRequest]:
        """Remove and return the requests of sequences that have waited too long for a slot."""
        refused: list[InflightRequest] = []
        for sequence in self.assignment.pop_expired(now_ns):
            refused += sequence.waiting
            self._abort(sequence, InvalidArgument("it waited too long for a sequence slot"))
            self._lost.drop(sequence.correlation)
        return refused


def _must_start(model: str, correlation: wire.Correlation) -> str:
    return (
        f"inference request for sequence {correlation} to model '{model}' must specify "
        "the START flag on the first request of the sequence"
    )
