"""A running request to an ensemble: its tensors, their readers and its unanswered steps.

Plain data and its accounts; `scheduler.py` decides. There are no sockets and no clock here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from zmqtriton.broker.ensembles.plan import EnsemblePlan, EnsembleStep, Selection
from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton_floor.errors import ZmqTritonError, from_number
from zmqtriton_floor.wire import (
    BYTE_WINDOW,
    SEQUENCE_END,
    SEQUENCE_START,
    STREAM_WINDOW,
    STREAM_WINDOW_BYTES,
    Block,
    Correlation,
    Place,
    Reference,
    RequestBody,
    Tensor,
)

SEQUENCE_FLAGS = SEQUENCE_START | SEQUENCE_END
#: The sequence flags and the sequence of a request. A step may change both for those after it.
SequenceMarks = tuple[int, Correlation]


class TensorSet:
    """A group of tensors that are read together.

    A run begins with a set of the request's inputs; each response of a decoupled step opens another
    set, for the tensors that are made of the response.
    """

    def __init__(self, selection: Selection, producer: MemberCall | None = None) -> None:
        #: Tensors by their names in the ensemble; None for an optional input that the client did
        #: not give, and for an output that its step did not make.
        self.tensors: dict[str, Tensor | None] = {}
        #: Sequence marks by tensor, where a step has changed them.
        self.sequences: dict[str, SequenceMarks] = {}
        #: The decoupled step whose response opened this set.
        self.producer = producer
        #: Number of unanswered requests that read this set, plus one while it is being processed.
        self.holds = 0
        #: True once the outputs of this set have been sent to the client.
        self.is_sent = False
        self._selection = selection
        self._missing: dict[int, int] = {}
        #: Leases of the broker by tensor, and the number of steps and clients that have yet to read
        #: it. Tensors of one block have a lease each: a step may have passed its input on.
        self._leased: dict[str, Block] = {}
        self._uses: dict[str, int] = {}

    def add(self, name: str, tensor: Tensor | None) -> list[EnsembleStep]:
        """Add a tensor; return the steps that now have all their inputs."""
        self.tensors[name] = tensor
        ready = []
        for step in self._selection.readers.get(name, ()):
            missing = self._missing.get(step.number, len(step.reads)) - 1
            self._missing[step.number] = missing
            if not missing:
                ready.append(step)
        return ready

    def add_outputs(self, step: EnsembleStep, made: Mapping[str, Tensor]) -> list[EnsembleStep]:
        """Add a step's outputs, by the ensemble's names; return the steps that can begin.

        A missing output is treated as an optional input without a value.
        """
        ready: list[EnsembleStep] = []
        for name, tensor in made.items():
            ready += self.add(name, tensor)
        for own_name in self._selection.used_outputs[step.number]:
            name = step.outputs[own_name]
            if name not in made:
                ready += self.add(name, None)
        return ready

    def lease(self, blocks: list[Block], tensors: Mapping[str, Tensor]) -> list[Block]:
        """Keep a lease for each new tensor; return the leases that no tensor needs.

        The leases of one block are interchangeable.
        """
        unused = [*blocks]
        for name, tensor in tensors.items():
            block, uses = tensor_block(tensor), self._selection.uses(name)
            if block is not None and uses and block in unused:
                unused.remove(block)
                self._leased[name], self._uses[name] = block, uses
        return unused

    def release_inputs(self, step: EnsembleStep) -> list[Block]:
        """Release the inputs of an answered step; return the leases that no other step needs."""
        released: list[Block] = []
        if self._leased:
            for name in step.reads:
                if name in self._leased and self._end_use(name):
                    released.append(self._leased.pop(name))
        return released

    def _end_use(self, name: str) -> bool:
        """Return whether this was the last use of a leased tensor."""
        self._uses[name] -= 1
        if self._uses[name]:
            return False
        del self._uses[name]
        return True

    @property
    def is_complete(self) -> bool:
        """True if all outputs are available."""
        return self.tensors.keys() >= set(self._selection.outputs)

    def take_leases(self, outputs: Iterable[str]) -> tuple[list[Block], list[Block]]:
        """Take the leases of outputs that are sent to the client.

        Returns the leases that can be passed on, and the blocks that a step still reads: for these
        the client needs further leases.
        """
        passed_on: list[Block] = []
        still_read: list[Block] = []
        for name in outputs if self._leased else ():
            block = self._leased.get(name)
            if block is None:
                continue
            if self._end_use(name):
                passed_on.append(self._leased.pop(name))
            else:
                still_read.append(block)
        return passed_on, still_read

    def take_all_leases(self) -> list[Block]:
        """Take all remaining leases."""
        left = [*self._leased.values()]
        self._leased.clear()
        self._uses.clear()
        return left


class EnsembleRun:
    """A request to an ensemble, from its admission to the answer of its last member request."""

    def __init__(self, request: InflightRequest, plan: EnsemblePlan, body: RequestBody) -> None:
        self.request = request
        self.plan = plan
        self.selection = plan.select(body.outputs)
        self.is_decoupled = request.generation.is_decoupled
        self.request_id = body.request_id
        self.parameters = body.parameters
        #: Places in the client's memory for outputs, by the outputs' names.
        self.places = {place.output: place for place in body.places}
        self.sequence: SequenceMarks = (request.flags & SEQUENCE_FLAGS, request.correlation)
        #: Calls of members, by their requests, until each request has its final answer.
        self.calls: dict[InflightRequest, MemberCall] = {}
        #: Tensor sets of the run; the first one holds the inputs.
        self.tensor_sets: list[TensorSet] = [TensorSet(self.selection)]
        #: Number of unanswered requests of a step, by its number, and the tensor sets that wait
        #: until the step may have another request.
        self.unanswered: dict[int, int] = {}
        self.waiting: dict[int, deque[TensorSet]] = {}
        #: The first error of a step, and the reason that the statistics give for it.
        self.error: ZmqTritonError | None = None
        self.reason = ""
        #: Number of responses that were sent to the client, and the number of them that it has
        #: read.
        self.sent = 0
        self.consumed = 0
        #: True if the client also limits the bytes of responses that it has not read. Then the
        #: numbers and sizes of these responses, and the sum of their sizes.
        self.has_byte_window = self.is_decoupled and bool(request.flags & BYTE_WINDOW)
        self._unread: deque[tuple[int, int]] = deque()
        self._unread_bytes = 0
        #: The times of all steps together: in queues, and from there to their last answers.
        self.queue_ns = 0
        self.compute_ns = 0
        #: Decoupled steps that may go on when the client has read more.
        self.stalled: list[MemberCall] = []
        #: Number of reasons that keep the run from ending while it is being processed.
        self.holds = 0
        self.is_over = False

    def marks_for(self, wave: TensorSet, tensors: Iterable[str]) -> SequenceMarks:
        """Return the sequence marks for a step that reads these tensors.

        They are the client's, unless an earlier step changed them.
        """
        if not wave.sequences:
            return self.sequence
        changed = [wave.sequences[name] for name in tensors if name in wave.sequences]
        return changed[-1] if changed else self.sequence

    def places_of(self, step: EnsembleStep) -> list[Place]:
        """Return the places of a step's outputs that no other step reads, by the step's names.

        The stub does not send such outputs back.
        """
        return [
            place._replace(output=output)
            for output, name in step.outputs.items()
            if (place := self.places.get(name)) and self.selection.uses(name) == 1
        ]

    def named(self, error: ZmqTritonError) -> ZmqTritonError:
        """Return an error of the same kind whose text names the ensemble."""
        return from_number(error.number, f"in ensemble '{self.plan.model}', {error.text}")

    @property
    def is_stalled(self) -> bool:
        """True while the steps must wait until the client has read more responses."""
        unread = self.sent - self.consumed
        return self._unread_bytes >= STREAM_WINDOW_BYTES or unread >= STREAM_WINDOW

    def add_sent(self, size: int) -> None:
        """Count a response that was sent, and its size in bytes."""
        if self.has_byte_window:
            self._unread.append((self.sent, size))
            self._unread_bytes += size
        self.sent += 1

    def consume(self, responses: int, passed: int) -> None:
        """Update the number of read responses, and of those that no longer count as unread."""
        self.consumed = max(self.consumed, responses)
        passed = max(self.consumed, passed)
        while self._unread and self._unread[0][0] < passed:
            self._unread_bytes -= self._unread.popleft()[1]

    def has_room(self, step: EnsembleStep) -> bool:
        limit = self.plan.max_at_once
        return not limit or self.unanswered.get(step.number, 0) < limit

    def wait(self, wave: TensorSet, step: EnsembleStep) -> None:
        """Queue a tensor set until a request of its step is answered.

        The set has all the inputs of the step.
        """
        wave.holds += 1
        self.waiting.setdefault(step.number, deque()).append(wave)

    def add_step_times(self, member: InflightRequest, now_ns: int) -> None:
        """Add the times of a step that has its last answer."""
        dispatched_ns = member.dispatched_ns or now_ns
        self.queue_ns += dispatched_ns - member.arrived_ns
        self.compute_ns += now_ns - dispatched_ns


@dataclass(slots=True, eq=False)
class MemberCall:
    """A call of a member: the member request, and its place in the run."""

    request: InflightRequest
    run: EnsembleRun
    wave: TensorSet
    step: EnsembleStep
    #: Number of a decoupled step's responses that were consumed, and how many of them its stub
    #: knows of.
    taken: int = 0
    granted: int = 0
    #: Number of responses that have come, of those that no longer count at the stub as unread, and
    #: the bytes of the others.
    arrived: int = 0
    passed: int = 0
    arrived_bytes: int = 0


def changed_marks(parameters: dict[str, object], sequence: SequenceMarks) -> SequenceMarks:
    """Return the sequence marks that a step's response sets for the following steps."""
    flags, correlation = sequence
    named = parameters.get("sequence_id")
    if isinstance(named, (int, str)) and (isinstance(named, str) or 0 <= named < 2**64):
        correlation = named
    for name, flag in (("sequence_start", SEQUENCE_START), ("sequence_end", SEQUENCE_END)):
        if isinstance(parameters.get(name), bool):
            flags = flags | flag if parameters[name] else flags & ~flag
    return flags, correlation


def size_of(body: bytes, tensors: Iterable[Tensor]) -> int:
    """Return the bytes of a response: its body, and the blocks that it refers to."""
    return len(body) + sum(one.data.size for one in tensors if type(one.data) is Reference)


def tensor_block(tensor: Tensor | None) -> Block | None:
    """Return the block of a tensor; None if the tensor is part of the message."""
    if tensor is None or type(tensor.data) is not Reference:
        return None
    return Block(tensor.data.owner, tensor.data.segment, tensor.data.block)
