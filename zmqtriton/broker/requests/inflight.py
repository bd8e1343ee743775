"""A request while the broker has it: the asking peer, its state, and its one final answer.

QUEUED ──dispatched──▶ EXECUTING ──answered──▶ ANSWERED; a queued request may be answered directly,
and one that is executed step by step goes back from EXECUTING to QUEUED. Only the methods here
write `state`.

A request refers to its generation and to other requests, and to nothing that holds it: its stub it
names by number, and what it waits in is a `QueuePlace`. Knows neither clocks nor sockets.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import NamedTuple

from zmqtriton.broker.memory.response_cache import CacheKey
from zmqtriton.broker.scheduling.generation import BrokerGeneration
from zmqtriton_floor import spans
from zmqtriton_floor.wire import SEQUENCE_START, BatchedRequest, Block, Request, make


class RequestState(enum.Enum):
    QUEUED = "queued"
    EXECUTING = "executing"
    ANSWERED = "answered"


class Batch(NamedTuple):
    """The requests of one call of execute()."""

    number: int
    requests: list[InflightRequest]
    dispatched_ns: int
    #: padding requests for empty slots, which the model computes too
    fillers: int = 0

    @property
    def is_cancelled(self) -> bool:
        """True if no caller still waits for the results of the batch."""
        answered = RequestState.ANSWERED
        return all(one.is_cancelled or one.state is answered for one in self.requests)


class QueuePlace(ABC):
    """A part of a queue, as the requests that wait in it see it."""

    @abstractmethod
    def leave(self, request: InflightRequest) -> None:
        """Remove a request that is answered without being executed."""


class InflightRequest:
    """An admitted request. It ends in ANSWERED, once."""

    __slots__ = (
        "arrived_ns",
        "batch",
        "body",
        "brokered_responses",
        "caller",
        "dispatched_ns",
        "elements",
        "error",
        "generation",
        "has_failed",
        "has_run",
        "is_abandoned",
        "is_cancelled",
        "is_counted",
        "is_late",
        "is_undecided",
        "key",
        "miss",
        "parent",
        "peer",
        "place",
        "queued_ns",
        "retained_blocks",
        "row",
        "size",
        "state",
        "steps",
        "stub",
    )

    def __init__(
        self, peer: int, row: Request, body: bytes, generation: BrokerGeneration, now_ns: int
    ) -> None:
        self.peer = peer
        self.row = row
        #: Name of the request in every process: the serial of the peer that made it, and its id
        #: there.
        self.key = (peer, row.id)
        #: The number of inferences that it counts for.
        self.elements = row.batch_size or 1
        self.body = body
        #: Size of the request's body, which may be freed before the answer is sent.
        self.size = len(body)
        self.generation = generation
        self.arrived_ns = now_ns
        #: Begin of the wait for its next execution.
        self.queued_ns = now_ns
        self.dispatched_ns = 0
        #: The serial of the stub that executes it; 0 if it is at no stub.
        self.stub = 0
        self.state = RequestState.QUEUED
        #: True if its client has cancelled it; it still gets its final answer.
        self.is_cancelled = False
        #: True if its caller has been answered early; the final answer still follows.
        self.is_abandoned = False
        #: True if it was counted as failed at its deadline, however its execution ends.
        self.is_counted = False
        #: Part of a queue that the request waits in; None if it is in no queue.
        self.place: QueuePlace | None = None
        #: True if it has waited longer than the queue's timeout, and now waits behind other
        #: requests.
        self.is_late = False
        #: Number of its responses that came through the broker, not straight from the stub.
        self.brokered_responses = 0
        #: True if an earlier broker had it, and it is not known yet whether a stub has begun it.
        self.is_undecided = False
        #: True if one of its responses was an error.
        self.has_failed = False
        #: The text of the last error among its responses, or of its refusal.
        self.error = ""
        #: True if it was executed at least once, and will be again: it is executed step by step.
        self.has_run = False
        #: Unanswered requests that execute a request to an ensemble; None for other requests, and
        #: before its run has begun.
        self.steps: Collection[InflightRequest] | None = None
        #: Request to an ensemble that this one is a step of; None if it is no step.
        self.parent: InflightRequest | None = None
        #: The blocks of its inputs, if the process that asked has died and holds nothing any more.
        self.retained_blocks: list[Block] = []
        #: Key for its answer after a cache miss, and the time of the lookup in ns; None without a
        #: miss.
        self.miss: tuple[CacheKey, int] | None = None
        #: Batch of its last execution; None before, and if an earlier broker has sent it.
        self.batch: Batch | None = None
        #: Batch that a model has made this request for; None for requests of others, and if that
        #: batch is answered.
        self.caller: Batch | None = None

    @property
    def trace(self) -> str:
        """The traceparent of its own span; "" if it is not traced."""
        return spans.below(self.row.trace, self.peer, self.row.id) if self.row.trace else ""

    @property
    def root(self) -> InflightRequest:
        """Return the client's or model's request that this one belongs to, or itself."""
        root = self
        while root.parent is not None:
            root = root.parent
        return root

    def work(self, batch: int) -> BatchedRequest:
        """Return the message that its stub gets."""
        row = self.row
        fields = (
            batch,
            self.peer,
            row.id,
            row.flags,
            row.correlation,
            row.priority,
            row.timeout_us,
            self.trace if row.trace else "",
            row.deadline_ns,
        )
        return make(BatchedRequest, fields)

    def dispatch(self, stub: int, now_ns: int, batch: Batch | None = None) -> None:
        """Enter EXECUTING in a stub.

        The batch is unknown if an earlier broker has sent the request.
        """
        assert self.state is RequestState.QUEUED, self.state
        self.state = RequestState.EXECUTING
        self.stub = stub
        self.batch = batch
        self.dispatched_ns = now_ns

    def recall(self) -> None:
        """Take back a request that a dead stub had not begun."""
        assert self.state is RequestState.EXECUTING, self.state
        self.state = RequestState.QUEUED
        self.stub, self.batch = 0, None

    def reschedule(self, now_ns: int) -> None:
        """Enter QUEUED again, for another execution that the stub has asked for."""
        assert self.state is RequestState.EXECUTING, self.state
        self.state = RequestState.QUEUED
        self.has_run = True
        self.queued_ns = now_ns
        self.row = self.row._replace(flags=self.row.flags & ~SEQUENCE_START)

    def begin(self, now_ns: int) -> bytes:
        """Begin a request to an ensemble, which other requests execute; return its body."""
        assert self.state is RequestState.QUEUED, self.state
        self.state = RequestState.EXECUTING
        self.dispatched_ns = now_ns
        body, self.body = self.body, b""
        return body

    def answer(self) -> None:
        assert self.state is not RequestState.ANSWERED
        self.state = RequestState.ANSWERED
        self.stub = 0
        self.batch = self.caller = None
        self.body = b""
