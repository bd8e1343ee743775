"""A request while the broker has it: the asking peer, its state, and its one final answer.

QUEUED ──dispatched──▶ EXECUTING ──answered──▶ ANSWERED; a queued request may be answered directly,
and one that is executed step by step goes back from EXECUTING to QUEUED. Only the methods here
write `state`.

One object has all that the broker knows of a request, from its message to its answer. It refers to
its generation and to other requests, and to nothing that holds it: its stub it names by number, and
what it waits in is a `QueuePlace`. Knows neither clocks nor sockets.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import NamedTuple

from zmqtriton.broker.memory.response_cache import CacheKey
from zmqtriton.broker.scheduling.generation import BrokerGeneration
from zmqtriton_floor import spans
from zmqtriton_floor.wire import (
    SEQUENCE_START,
    UNCHECKED,
    BatchedRequest,
    Block,
    Request,
    make,
)


class RequestState(enum.Enum):
    QUEUED = "queued"
    EXECUTING = "executing"
    ANSWERED = "answered"


# every request asks for these, and a look into an Enum is a call
QUEUED = RequestState.QUEUED
EXECUTING = RequestState.EXECUTING
ANSWERED = RequestState.ANSWERED


class Batch:
    """The requests of one call of execute()."""

    __slots__ = ("dispatched_ns", "fillers", "number", "requests")

    def __init__(
        self, number: int, requests: list[InflightRequest], dispatched_ns: int, fillers: int = 0
    ) -> None:
        self.number = number
        self.requests = requests
        self.dispatched_ns = dispatched_ns
        #: padding requests for empty slots, which the model computes too
        self.fillers = fillers

    @property
    def is_cancelled(self) -> bool:
        """True if no caller waits any more for the results of its requests."""
        return all(one.is_cancelled or one.state is ANSWERED for one in self.requests)


class Size(NamedTuple):
    """The size of a request's inputs, as its batcher measures them."""

    #: The sum for its rows.
    cost: float
    #: The sizes of its largest row in each dimension: for a padded cost, and for likeness.
    largest: tuple[float, ...]
    likeness: tuple[float, ...]


#: The size of a request that has no measure.
NO_SIZE = Size(0, (), ())


class QueuePlace(ABC):
    """A part of a queue, as the requests that wait in it see it."""

    @abstractmethod
    def leave(self, request: InflightRequest) -> None:
        """Remove a request that is answered without being executed."""


class InflightRequest:
    """An admitted request. It ends in ANSWERED, once. Its message is described in wire.Request."""

    __slots__ = (
        "arrived_ns",
        #: The generation that it was sent to, by its number, or the model by its name.
        "asked_of",
        #: Batch of its last execution; None before, and if an earlier broker has sent it.
        "batch",
        "batch_key",
        "body",
        #: Number of its responses that came through the broker, not straight from the stub.
        "brokered_responses",
        "cache_key",
        #: Batch that a model has made this request for; None for requests of others, and if that
        #: batch is answered.
        "caller",
        "caller_id",
        "caller_peer",
        "correlation",
        "deadline_ns",
        "dispatched_ns",
        #: The number of inferences that it counts for.
        "elements",
        #: The text of the last error among its responses, or of its refusal.
        "error",
        "flags",
        "generation",
        #: True if one of its responses was an error.
        "has_failed",
        #: True if it was executed at least once, and will be again: it is executed step by step.
        "has_run",
        "id",
        #: True if its caller has been answered early; the final answer still follows.
        "is_abandoned",
        #: True if its client has cancelled it; it still gets its final answer.
        "is_cancelled",
        #: True if it was counted as failed at its deadline, however its execution ends.
        "is_counted",
        #: True if it has waited longer than the queue's timeout, and now waits behind other
        #: requests.
        "is_late",
        #: True if an earlier broker had it, and it is not known yet whether a stub has begun it.
        "is_undecided",
        #: Name of the request in every process: the serial of the peer that made it, and its id
        #: there.
        "key",
        #: Size of its inputs, if its batcher measures them.
        "measured",
        #: Key for its answer after a cache miss, and the time of the lookup in ns; None without a
        #: miss.
        "miss",
        #: Request to an ensemble that this one is a step of; None if it is no step.
        "parent",
        "parent_span",
        "peer",
        #: Part of a queue that the request waits in; None if it is in no queue.
        "place",
        "placement",
        "priority",
        #: Begin of the wait for its next execution.
        "queued_ns",
        #: The blocks of its inputs, if the process that asked has died and holds nothing any more.
        "retained_blocks",
        #: Size of the request's body, which may be freed before the answer is sent.
        "size",
        "state",
        #: Unanswered requests that execute a request to an ensemble; None for other requests, and
        #: before its run has begun.
        "steps",
        #: The serial of the stub that executes it; 0 if it is at no stub.
        "stub",
        "timeout_us",
    )

    def __init__(
        self, peer: int, row: Request, body: bytes, generation: BrokerGeneration, now_ns: int
    ) -> None:
        (
            self.id,
            named_generation,
            model,
            _,
            self.flags,
            self.priority,
            self.timeout_us,
            self.deadline_ns,
            batch_size,
            self.batch_key,
            self.correlation,
            self.cache_key,
            self.parent_span,
            self.caller_peer,
            self.caller_id,
            self.placement,
        ) = row
        self.peer = peer
        self.key = (peer, self.id)
        self.asked_of = named_generation or model
        self.elements = batch_size or 1
        self.body = body
        self.size = len(body)
        self.generation = generation
        self.arrived_ns = now_ns
        self.queued_ns = now_ns
        self.dispatched_ns = 0
        self.stub = 0
        self.state = QUEUED
        self.is_cancelled = False
        self.is_abandoned = False
        self.is_counted = False
        self.place: QueuePlace | None = None
        self.is_late = False
        self.brokered_responses = 0
        self.is_undecided = False
        self.has_failed = False
        self.error = ""
        self.has_run = False
        self.steps: Collection[InflightRequest] | None = None
        self.parent: InflightRequest | None = None
        self.retained_blocks: list[Block] | None = None
        self.miss: tuple[CacheKey, int] | None = None
        self.batch: Batch | None = None
        self.caller: Batch | None = None
        self.measured = NO_SIZE

    def adapt_call(self) -> None:
        """Complete a request that a model has made.

        The model could check nothing, so the stub must; and it could not know whether the first
        dimension is that of a batch.
        """
        self.flags |= UNCHECKED
        if not self.generation.has_batches:
            self.elements, self.batch_key = 1, 0
        elif self.generation.signature.has_constant_key:
            self.batch_key = 0

    @property
    def trace(self) -> str:
        """The traceparent of its own span; "" if it is not traced."""
        return spans.below(self.parent_span, self.peer, self.id) if self.parent_span else ""

    @property
    def root(self) -> InflightRequest:
        """Return the client's or model's request that this one belongs to, or itself."""
        root = self
        while root.parent is not None:
            root = root.parent
        return root

    def dispatch(
        self, stub: int, now_ns: int, batch: Batch | None = None
    ) -> tuple[BatchedRequest, bytes]:
        """Enter EXECUTING in a stub; return the message that the stub gets, and its body.

        The batch is unknown if an earlier broker has sent the request.
        """
        assert self.state is QUEUED, self.state
        self.state = EXECUTING
        self.stub = stub
        self.batch = batch
        self.dispatched_ns = now_ns
        row = (
            0 if batch is None else batch.number,
            self.peer,
            self.id,
            self.flags,
            self.correlation,
            self.priority,
            self.timeout_us,
            self.trace if self.parent_span else "",
            self.deadline_ns,
        )
        return make(BatchedRequest, row), self.body

    def recall(self) -> None:
        """Take back a request that a dead stub had not begun."""
        assert self.state is EXECUTING, self.state
        self.state = QUEUED
        self.stub, self.batch = 0, None

    def reschedule(self, now_ns: int) -> None:
        """Enter QUEUED again, for another execution that the stub has asked for."""
        assert self.state is EXECUTING, self.state
        self.state = QUEUED
        self.has_run = True
        self.queued_ns = now_ns
        self.flags &= ~SEQUENCE_START

    def begin(self, now_ns: int) -> bytes:
        """Begin a request to an ensemble, which other requests execute; return its body."""
        assert self.state is QUEUED, self.state
        self.state = EXECUTING
        self.dispatched_ns = now_ns
        body, self.body = self.body, b""
        return body

    def answer(self) -> None:
        assert self.state is not ANSWERED
        self.state = ANSWERED
        self.stub = 0
        self.batch = self.caller = None
        self.body = b""
