"""A request while the broker has it: who asked, where it is, and its one final answer.

QUEUED ──dispatched──▶ EXECUTING ──answered──▶ ANSWERED; a queued one may be answered directly, and
one that is executed step by step goes back from EXECUTING to QUEUED.
`state` is written by the methods here and by nobody else. Knows neither clocks nor sockets.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from zmqtriton_floor import spans
from zmqtriton_floor.wire import SEQUENCE_START, BatchedRequest, Block, Request

if TYPE_CHECKING:
    from zmqtriton.broker.ensembles.runs import Call, EnsembleRun
    from zmqtriton.broker.memory.response_cache import CacheKey
    from zmqtriton.broker.scheduling.generation import Generation
    from zmqtriton.broker.scheduling.instances import Instance
    from zmqtriton.broker.scheduling.queue_policy import PriorityLevel
    from zmqtriton.broker.sequences.slots import Sequence


class RequestState(enum.Enum):
    QUEUED = "queued"
    EXECUTING = "executing"
    ANSWERED = "answered"


class InflightRequest:
    """One admitted request. Ends in ANSWERED, once."""

    __slots__ = (
        "arrived_ns",
        "body",
        "brokered_responses",
        "call",
        "dispatched_ns",
        "ensemble_run",
        "error",
        "generation",
        "has_failed",
        "has_run",
        "instance",
        "is_cancelled",
        "is_late",
        "level",
        "miss",
        "peer",
        "queued_ns",
        "retained_blocks",
        "row",
        "sequence",
        "size",
        "state",
    )

    def __init__(
        self, peer: int, row: Request, body: bytes, generation: Generation, now_ns: int
    ) -> None:
        self.peer = peer
        self.row = row
        self.body = body
        #: What the body had when it came; it may go before the answer does.
        self.size = len(body)
        self.generation = generation
        self.arrived_ns = now_ns
        #: Since when it waits for its next execution.
        self.queued_ns = now_ns
        self.dispatched_ns = 0
        self.instance: Instance | None = None
        self.state = RequestState.QUEUED
        #: Whoever asked does not want it any more; it still gets its final answer.
        self.is_cancelled = False
        #: Where in a queue it waits; None: in none.
        self.level: PriorityLevel | None = None
        #: It has waited for longer than it may, and waits on behind others.
        self.is_late = False
        #: Responses of it that came through here, and not straight from the stub.
        self.brokered_responses = 0
        #: One of its responses was an error.
        self.has_failed = False
        #: The text of the last one of those, or of what it is refused with.
        self.error = ""
        #: It was executed at least once, and is to be again.
        self.has_run = False
        #: An ensemble's: what it has become.
        self.ensemble_run: EnsembleRun | None = None
        #: What its inputs lie in, where whoever asked has died and keeps nothing any more.
        self.retained_blocks: list[Block] = []
        #: The one that it is a request of, until it is answered; None: it is of none.
        self.sequence: Sequence | None = None
        #: It was not in the cache: where its answer is to be kept for those who ask the same, and
        #: how long it took to look.
        self.miss: tuple[CacheKey, int] | None = None
        #: A member's of an ensemble: what it is asked for.
        self.call: Call | None = None

    @property
    def key(self) -> tuple[int, int]:
        """Names it everywhere."""
        return self.peer, self.row.id

    @property
    def elements(self) -> int:
        """How many inferences it counts for."""
        return self.row.batch_size or 1

    @property
    def trace(self) -> str:
        """The traceparent of its own span; "": it is not traced."""
        return spans.below(self.row.trace, self.peer, self.row.id) if self.row.trace else ""

    def work(self, batch: int) -> BatchedRequest:
        """What its stub is told."""
        row = self.row
        return BatchedRequest(
            *(batch, self.peer, row.id, row.flags, row.correlation, row.priority, row.timeout_us),
            self.trace if row.trace else "",
        )

    def dispatch(self, instance: Instance, now_ns: int) -> None:
        assert self.state is RequestState.QUEUED, self.state
        self.state = RequestState.EXECUTING
        self.instance = instance
        self.dispatched_ns = now_ns

    def recall(self) -> None:
        """Its stub is dead and had not begun it."""
        assert self.state is RequestState.EXECUTING, self.state
        self.state = RequestState.QUEUED
        self.instance = None

    def reschedule(self, now_ns: int) -> None:
        """Its stub has executed it, and wants it again."""
        assert self.state is RequestState.EXECUTING, self.state
        self.state = RequestState.QUEUED
        self.has_run = True
        self.queued_ns = now_ns
        self.row = self.row._replace(flags=self.row.flags & ~SEQUENCE_START)

    def begin(self, now_ns: int) -> bytes:
        """An ensemble's is executed by other requests, not by an instance; returns its body."""
        assert self.state is RequestState.QUEUED, self.state
        self.state = RequestState.EXECUTING
        self.dispatched_ns = now_ns
        body, self.body = self.body, b""
        return body

    def resume(self, instance: Instance, now_ns: int) -> None:
        """An earlier broker had dispatched it: the stub has it, or had."""
        self.dispatch(instance, now_ns)
        instance.open_requests[self.key] = self

    def answer(self) -> None:
        assert self.state is not RequestState.ANSWERED
        self.state = RequestState.ANSWERED
        self.instance = None
        self.body = b""
