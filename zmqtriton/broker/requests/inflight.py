"""A request while the broker has it: the asking peer, its state, and its one final answer.

QUEUED ──dispatched──▶ EXECUTING ──answered──▶ ANSWERED; a queued request may be answered directly,
and one that is executed step by step goes back from EXECUTING to QUEUED. `state` is written by the
methods here and by nobody else.

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
        """True if nobody waits any more for what its requests lead to."""
        answered = RequestState.ANSWERED
        return all(one.is_cancelled or one.state is answered for one in self.requests)


class QueuePlace(ABC):
    """A part of a queue, as the requests that wait in it know it."""

    @abstractmethod
    def leave(self, request: InflightRequest) -> None:
        """Let a request go that is answered without being executed."""


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
        #: Its name in every process: who asked, and the number there.
        self.key = (peer, row.id)
        #: The number of inferences that it counts for.
        self.elements = row.batch_size or 1
        self.body = body
        #: The size of the body that came with it; the body may go before the answer does.
        self.size = len(body)
        self.generation = generation
        self.arrived_ns = now_ns
        #: Since when it has waited for its next execution.
        self.queued_ns = now_ns
        self.dispatched_ns = 0
        #: The serial of the stub that has it; 0 for none.
        self.stub = 0
        self.state = RequestState.QUEUED
        #: The client has given it up; it still gets its final answer.
        self.is_cancelled = False
        #: The caller has received its final reply.
        self.is_abandoned = False
        #: Its deadline has passed and it counts as failed, however its execution ends.
        self.is_counted = False
        #: What it waits in; None if it is in no queue.
        self.place: QueuePlace | None = None
        #: It has waited for longer than it may, and now waits behind the others.
        self.is_late = False
        #: Its responses that came through the broker, not straight from the stub.
        self.brokered_responses = 0
        #: An earlier broker had it, and whether a stub has begun it is not known yet.
        self.is_undecided = False
        #: One of its responses was an error.
        self.has_failed = False
        #: The text of the last error among its responses, or of its refusal.
        self.error = ""
        #: It was executed at least once, and will be again.
        self.has_run = False
        #: For a request to an ensemble that has begun: the unanswered requests that execute it.
        self.steps: Collection[InflightRequest] | None = None
        #: For such a step: the request to the ensemble.
        self.parent: InflightRequest | None = None
        #: The blocks of its inputs, if the process that asked has died and holds nothing any more.
        self.retained_blocks: list[Block] = []
        #: After a cache miss: where to keep its answer, and how long the lookup took.
        self.miss: tuple[CacheKey, int] | None = None
        #: The requests with which it was executed last.
        self.batch: Batch | None = None
        #: For a request of a model: the batch that it was made for.
        self.caller: Batch | None = None

    @property
    def trace(self) -> str:
        """The traceparent of its own span; "" if it is not traced."""
        return spans.below(self.row.trace, self.peer, self.row.id) if self.row.trace else ""

    @property
    def root(self) -> InflightRequest:
        """The request of a client or a model that this one is executed for; itself if it is one."""
        root = self
        while root.parent is not None:
            root = root.parent
        return root

    def work(self, batch: int) -> BatchedRequest:
        """The message that its stub gets."""
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
        """Note that a stub gets it; the batch is not known if an earlier broker has sent it."""
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
        """Queue it for another execution, as its stub has asked."""
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
