"""One request to an ensemble while it runs: its tensors, who still needs them, what is unanswered.

Plain data and its accounts; `ensembles` decides what happens. Knows neither sockets nor clocks.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from zmqtriton.broker.ensembles.plan import EnsemblePlan, Selection, Step
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.wire import (
    SEQUENCE_END,
    SEQUENCE_START,
    Block,
    Correlation,
    Reference,
    RequestBody,
    Tensor,
)

if TYPE_CHECKING:
    from zmqtriton.broker.requests.inflight import InflightRequest

SEQUENCE_FLAGS = SEQUENCE_START | SEQUENCE_END
#: Of a request: whether it starts or ends a sequence, and which; a step may change both for those
#: after it.
SequenceMarks = tuple[int, Correlation]


class TensorSet:
    """Tensors that belong together: a request's inputs and what is made of them; or one response of
    a decoupled step, and what is made of that."""

    def __init__(self, selection: Selection, producer: InflightRequest | None = None) -> None:
        #: By the ensemble's names; None for an optional input that was not given.
        self.tensors: dict[str, Tensor | None] = {}
        #: Where a step has changed it.
        self.sequences: dict[str, SequenceMarks] = {}
        #: The decoupled step whose response began it.
        self.producer = producer
        #: Reasons for it to go on: unanswered requests, and being looked at.
        self.holds = 0
        #: Its outputs have gone out.
        self.is_sent = False
        self._selection = selection
        self._missing: dict[int, int] = {}
        self._leased: Counter[Block] = Counter()
        self._uses: Counter[Block] = Counter()

    def add(self, name: str, tensor: Tensor | None) -> list[Step]:
        """The steps that have all their inputs now."""
        self.tensors[name] = tensor
        ready = []
        for step in self._selection.readers.get(name, ()):
            missing = self._missing.get(step.number, len(step.reads)) - 1
            self._missing[step.number] = missing
            if not missing:
                ready.append(step)
        return ready

    def lease(self, blocks: list[Block], tensors: Iterable[tuple[str, Tensor]]) -> list[Block]:
        """Takes leases of what new tensors lie in; returns those that nobody needs."""
        if not blocks:
            return []
        for block in blocks:
            self._leased[block] += 1
        for name, tensor in tensors:
            read = tensor_block(tensor)
            if read is not None and read in self._leased:
                self._uses[read] += self._selection.uses(name)
        return [lease for block in dict.fromkeys(blocks) for lease in self._drop(block, 0)]

    def release_inputs(self, step: Step) -> list[Block]:
        """A step is answered; returns the leases that it was the last to need."""
        if not self._leased:
            return []
        blocks = [tensor_block(self.tensors.get(name)) for name in step.reads]
        return [lease for block in blocks if block for lease in self._drop(block, 1)]

    def _drop(self, block: Block, uses: int) -> list[Block]:
        self._uses[block] -= uses
        if self._uses[block] > 0:
            return []
        del self._uses[block]
        return [block] * self._leased.pop(block, 0)

    @property
    def is_complete(self) -> bool:
        """Whether all outputs are there."""
        return all(name in self.tensors for name in self._selection.outputs)

    def take_leases(self, blocks: Iterable[Block]) -> list[Block]:
        """One lease of each that is leased: they go on to whoever asked."""
        if not self._leased:
            return []
        taken = [block for block in dict.fromkeys(blocks) if self._leased[block] > 0]
        self._leased.subtract(taken)
        return taken

    def take_all_leases(self) -> list[Block]:
        """All leases that are left."""
        if not self._leased:
            return []
        left = list((+self._leased).elements())
        self._leased.clear()
        return left


class EnsembleRun:
    """Ends when the last of its member requests is answered, well or not."""

    def __init__(self, request: InflightRequest, plan: EnsemblePlan, body: RequestBody) -> None:
        self.request = request
        self.plan = plan
        self.selection = plan.select(body.outputs)
        self.is_decoupled = request.generation.is_decoupled
        self.request_id = body.request_id
        self.parameters = body.parameters
        self.sequence: SequenceMarks = (request.row.flags & SEQUENCE_FLAGS, request.row.correlation)
        #: Member requests without their final answer, by id.
        self.open: dict[int, InflightRequest] = {}
        #: The first one has the inputs.
        self.tensor_sets: list[TensorSet] = [TensorSet(self.selection)]
        #: By step, how many of its requests are unanswered, and the waves that wait until there
        #: are fewer.
        self.unanswered: Counter[int] = Counter()
        self.waiting: dict[int, deque[TensorSet]] = {}
        #: Why it has failed, and what the statistics call that.
        self.error: ZmqTritonError | None = None
        self.reason = ""
        #: Responses that have gone out, and how many of them were read.
        self.sent = 0
        self.consumed = 0
        #: What its steps took in all: waiting, and from there to their last answer.
        self.queue_ns = 0
        self.compute_ns = 0
        #: Decoupled steps that may go on when more is read.
        self.stalled: list[InflightRequest] = []
        #: It is being looked at, and must not end meanwhile.
        self.holds = 0
        self.is_over = False

    def has_room(self, step: Step) -> bool:
        most = self.plan.most_at_once
        return not most or self.unanswered[step.number] < most

    def wait(self, wave: TensorSet, step: Step) -> None:
        """It has all it needs, and goes when one of its kind is answered."""
        wave.holds += 1
        self.waiting.setdefault(step.number, deque()).append(wave)

    def next_waiting(self, step: Step) -> TensorSet | None:
        waiting = self.waiting.get(step.number)
        return waiting.popleft() if waiting else None

    def add_step_times(self, member: InflightRequest, now_ns: int) -> None:
        """A step has its last answer."""
        dispatched_ns = member.dispatched_ns or now_ns
        self.queue_ns += dispatched_ns - member.arrived_ns
        self.compute_ns += now_ns - dispatched_ns


class Call:
    """A member request's place in its run."""

    __slots__ = ("granted", "run", "step", "taken", "wave")

    def __init__(self, run: EnsembleRun, wave: TensorSet, step: Step) -> None:
        self.run = run
        self.wave = wave
        self.step = step
        #: Responses of a decoupled step that are done with, and how many its stub was told of.
        self.taken = 0
        self.granted = 0


def tensor_block(tensor: Tensor | None) -> Block | None:
    """What a tensor lies in, if that is not the message itself."""
    if tensor is None or type(tensor.data) is not Reference:
        return None
    return Block(tensor.data.owner, tensor.data.segment, tensor.data.block)
