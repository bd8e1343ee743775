"""The stubs of a generation, as the broker sees them: idle ones, and the batches of others.

    event           ABSENT   IDLE     BUSY     OVERDUE  LEAVING  DYING
    arrived         IDLE                       OVERDUE           DYING
    dispatched               BUSY     BUSY
    advanced                          BUSY     OVERDUE  LEAVING  DYING
    executed                          IDLE     OVERDUE  LEAVING  DYING
    dismissed                LEAVING  LEAVING  OVERDUE  LEAVING  DYING
    ran out         OVERDUE           OVERDUE           OVERDUE
    parted          DYING    DYING    DYING    DYING    DYING    DYING
    died            GONE     GONE     GONE     GONE     GONE     GONE

Everything that changes an instance's state is in TRANSITIONS, and `enter` alone writes it; but the
usual changes of each batch are written where they happen.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from zmqtriton.broker.requests.inflight import Batch, InflightRequest
from zmqtriton.config.resources import ResourceNeed
from zmqtriton_floor.errors import Unavailable, ZmqTritonError
from zmqtriton_floor.execution_progress import FENCE_NS, RequestKey
from zmqtriton_floor.wire import BatchedRequest, Executed


class Occupation(enum.Enum):
    ABSENT = "absent"  # the supervisor or its hello has announced it, but not both yet
    IDLE = "idle"
    BUSY = "busy"
    OVERDUE = "overdue"  # executing for longer than its model allows; it is being killed
    LEAVING = "leaving"  # not wanted any more; it answers what it has
    DYING = "dying"  # its process is dead; what it has sent is still being read
    GONE = "gone"

    # Enum's own is written in Python, and TRANSITIONS is asked for each batch.
    __hash__ = object.__hash__


class InstanceEvent(enum.Enum):
    ARRIVED = "arrived"
    DISPATCHED = "dispatched"
    ADVANCED = "advanced"  # it has executed a batch and has another one that was sent ahead
    EXECUTED = "executed"
    DISMISSED = "dismissed"
    RAN_OUT = "ran out"
    PARTED = "parted"
    DIED = "died"

    __hash__ = object.__hash__


# every batch asks for these, and a look into an Enum is a call
IDLE = Occupation.IDLE
BUSY = Occupation.BUSY

TRANSITIONS: dict[tuple[Occupation, InstanceEvent], Occupation] = {
    (Occupation.ABSENT, InstanceEvent.ARRIVED): Occupation.IDLE,
    (Occupation.IDLE, InstanceEvent.DISPATCHED): Occupation.BUSY,
    (Occupation.BUSY, InstanceEvent.DISPATCHED): Occupation.BUSY,
    (Occupation.BUSY, InstanceEvent.ADVANCED): Occupation.BUSY,
    (Occupation.BUSY, InstanceEvent.EXECUTED): Occupation.IDLE,
    (Occupation.BUSY, InstanceEvent.RAN_OUT): Occupation.OVERDUE,
    # It tells this broker nothing: it may hang in what the last one had asked for.
    (Occupation.ABSENT, InstanceEvent.RAN_OUT): Occupation.OVERDUE,
    # Its kill is on the way, and what it were given now would die with it.
    (Occupation.OVERDUE, InstanceEvent.ARRIVED): Occupation.OVERDUE,
    (Occupation.OVERDUE, InstanceEvent.ADVANCED): Occupation.OVERDUE,
    (Occupation.OVERDUE, InstanceEvent.EXECUTED): Occupation.OVERDUE,
    (Occupation.IDLE, InstanceEvent.DISMISSED): Occupation.LEAVING,
    (Occupation.BUSY, InstanceEvent.DISMISSED): Occupation.LEAVING,
    (Occupation.OVERDUE, InstanceEvent.DISMISSED): Occupation.OVERDUE,
    (Occupation.LEAVING, InstanceEvent.DISMISSED): Occupation.LEAVING,
    (Occupation.LEAVING, InstanceEvent.ADVANCED): Occupation.LEAVING,
    (Occupation.LEAVING, InstanceEvent.EXECUTED): Occupation.LEAVING,
    (Occupation.LEAVING, InstanceEvent.RAN_OUT): Occupation.OVERDUE,
    (Occupation.DYING, InstanceEvent.DISMISSED): Occupation.DYING,
    (Occupation.LEAVING, InstanceEvent.PARTED): Occupation.DYING,
    (Occupation.ABSENT, InstanceEvent.PARTED): Occupation.DYING,
    (Occupation.IDLE, InstanceEvent.PARTED): Occupation.DYING,
    (Occupation.BUSY, InstanceEvent.PARTED): Occupation.DYING,
    (Occupation.OVERDUE, InstanceEvent.PARTED): Occupation.DYING,
    # Its connection had ended before.
    (Occupation.DYING, InstanceEvent.PARTED): Occupation.DYING,
    (Occupation.DYING, InstanceEvent.ARRIVED): Occupation.DYING,
    (Occupation.DYING, InstanceEvent.ADVANCED): Occupation.DYING,
    (Occupation.DYING, InstanceEvent.EXECUTED): Occupation.DYING,
    **{
        (state, InstanceEvent.DIED): Occupation.GONE
        for state in Occupation
        if state is not Occupation.GONE
    },
}


class ImpossibleTransition(ZmqTritonError):
    """Raised for a transition that TRANSITIONS does not list: a defect of the broker."""


#: The number of batches that an earlier broker had dispatched.
EARLIER = 0
_OPEN = (IDLE, BUSY)


@dataclass(eq=False)
class RateLimiterMember:
    """One of the instances that share resources."""

    resource_need: ResourceNeed
    _find_blockers: Callable[[ResourceNeed], list[Instance]]
    #: Points that it has used, and a number for the order of those that have work; 0 if it has
    #: none.
    points: int
    waits_since: int = 0
    #: True while the rate limiter lets this instance begin a batch.
    is_its_turn: bool = False

    def blockers(self) -> list[Instance]:
        """Return the executing members that hold resources it needs; [] if it lacks none."""
        return self._find_blockers(self.resource_need)


@dataclass(eq=False)
class StreamLimit:
    """The limit of the requests of one instance whose senders are open."""

    _limit: int
    #: Counts the requests that a stub has of an earlier broker and that have not come again.
    _count_earlier: Callable[[int], int]

    def room(self, instance: Instance) -> int:
        """Return the number of further requests that an instance may get."""
        taken = len(instance.open_requests) + self._count_earlier(instance.serial)
        return max(0, self._limit - taken)


class ExecutionProgress(Protocol):
    """The broker's view of zmqtriton_floor.execution_progress.ProgressView."""

    @property
    def last_begun_batch(self) -> int:
        """The number of the last batch that was begun."""

    def fence(self, epoch: int) -> None:
        """Keep the stub from beginning batches of an earlier broker."""

    def may_have_begun(self, key: RequestKey) -> bool:
        """True if the stub has begun the request, or if that is not known."""

    def begun_keys(self) -> frozenset[RequestKey] | None:
        """Return the requests that the stub may have begun; None if that is not known."""

    def close(self) -> None:
        """Close the page."""


@dataclass(slots=True, eq=False)
class Instance:
    """One stub. It may get work once it has said hello and the supervisor has attached it."""

    serial: int
    name: str
    generation: int
    #: Page that shows its begun batches; None if nothing may be sent ahead.
    progress: ExecutionProgress | None = None
    state: Occupation = Occupation.ABSENT
    #: True once the stub has said hello. Before that, it is not known which requests of an earlier
    #: broker it has.
    has_arrived: bool = False
    has_executed: bool = False
    #: True while the limit of its executions does not hold.
    rests: bool = False
    #: True once the instance gets no new requests; it ends after its last answer.
    is_dismissed: bool = False
    #: Batches whose execute() has not returned, in the order of execution.
    batches: dict[int, Batch] = field(default_factory=dict)
    #: Requests of this instance without a final answer.
    open_requests: dict[tuple[int, int], InflightRequest] = field(default_factory=dict)
    #: Maximum number of batches that it executes at the same time.
    concurrency: int = 1
    #: The ends of batches in the message that is being read.
    reported: list[Executed] = field(default_factory=list)
    #: Begin of the execution time that was not counted yet; 0 if the instance executes nothing.
    executing_since_ns: int = 0
    #: Membership among the instances that share resources; None if this one shares none.
    membership: RateLimiterMember | None = None
    #: Bounds its requests without a final answer; None if only its batches count.
    streams: StreamLimit | None = None
    #: Number of an earlier broker's batches that it still executes, of those that it had at its
    #: hello.
    earlier: int = 0
    #: Time when it was fenced off from earlier brokers.
    fenced_ns: int = 0
    #: The unanswered calls of its process.
    open_calls: dict[tuple[int, int], InflightRequest] = field(default_factory=dict)
    #: Calls that the instance's process waits for, by batch number (0: any batch). Each has the
    #: number of replies that had come when the process reported it; None if it is already answered.
    reported_waits: dict[int, list[tuple[InflightRequest, int] | None]] = field(
        default_factory=dict
    )
    #: The calls that its process waits for without beginning anything else.
    blocking_calls: dict[tuple[int, int], InflightRequest] = field(default_factory=dict)

    @property
    def is_idle(self) -> bool:
        return self.state is IDLE

    @property
    def is_open(self) -> bool:
        """True if the stub is present and will stay."""
        return self.state in _OPEN

    def enter(self, event: InstanceEvent) -> None:
        state = TRANSITIONS.get((self.state, event))
        if state is None:
            raise ImpossibleTransition(f"{self.name} {event.value} while {self.state.value}")
        self.state = state

    @property
    def batch_count(self) -> int:
        """Return the number of batches that it executes, or may execute for an earlier broker."""
        return len(self.batches) + max(0, self.earlier - 1)

    @property
    def free_slots(self) -> int:
        """Return the number of further batches that it could execute at the same time."""
        if self.streams is not None and not self.streams.room(self):
            return 0
        return self.concurrency - self.batch_count if self.is_open else 0

    @property
    def startable_batches(self) -> int:
        """Return the number of batches that it can begin now; 0 if the rate limiter forbids it."""
        if self.membership is not None and not self.membership.is_its_turn:
            return 0
        return self.free_slots

    def await_hello(self, now_ns: int, epoch: int) -> None:
        """Wait for its hello: it may still execute requests of an earlier broker.

        From now on it begins none of those.
        """
        self.batches[EARLIER] = Batch(EARLIER, [], now_ns)
        if self.progress is not None:
            self.progress.fence(epoch)
            self.fenced_ns = now_ns

    def may_have_begun(self, key: RequestKey, now_ns: int) -> bool:
        """True if its stub, which has not said hello, may have begun an earlier request."""
        if self.progress is None or now_ns - self.fenced_ns < FENCE_NS:
            return True
        return self.progress.may_have_begun(key)

    def arrive(self, slots: int = 1) -> None:
        self.enter(InstanceEvent.ARRIVED)
        self.has_arrived = True
        self.batches.pop(EARLIER, None)
        self.concurrency = slots

    def dispatch(self, batch: Batch) -> list[tuple[BatchedRequest, bytes]]:
        """Dispatch a batch to its stub; return the messages for the stub, and their bodies."""
        if self.state is IDLE:
            self.state = BUSY  # as enter() does, without the call
        else:
            self.enter(InstanceEvent.DISPATCHED)
        if not self.batches:
            self.executing_since_ns = batch.dispatched_ns
        self.batches[batch.number] = batch
        works = []
        for request in batch.requests:
            self.open_requests[request.key] = request
            works.append(request.dispatch(self.serial, batch.dispatched_ns, batch))
        return works

    def resume(self, request: InflightRequest, now_ns: int) -> None:
        """Take back a request that an earlier broker had dispatched to it."""
        request.dispatch(self.serial, now_ns)
        self.open_requests[request.key] = request

    def finish_batch(self, batch: int, now_ns: int) -> tuple[Batch, int]:
        """End a batch whose execute() has returned; return it, and the execution time to count.

        Raises KeyError for a batch that it never got.
        """
        batches = self.batches
        if batch in batches:
            executed = batches.pop(batch)
        elif self.earlier > 1:
            self.earlier -= 1
            executed = batches[EARLIER]
        else:
            self.earlier = 0
            executed = batches.pop(EARLIER)
        if self.reported_waits:
            self.reported_waits = {}
        if self.state is not BUSY:
            self.enter(InstanceEvent.ADVANCED if batches else InstanceEvent.EXECUTED)
        elif not batches:
            self.state = IDLE  # as enter() does, without the call
        since_ns = self.executing_since_ns  # as take_busy_ns() does, which would be one call more
        self.executing_since_ns = now_ns if batches else 0
        return executed, now_ns - since_ns if 0 < since_ns < now_ns else 0

    def busy_ns(self, now_ns: int) -> int:
        """Return the execution time since it was last counted."""
        return max(0, now_ns - self.executing_since_ns) if self.executing_since_ns else 0

    def take_busy_ns(self, now_ns: int) -> int:
        """Return the execution time since it was last counted, and count it."""
        since_ns = self.executing_since_ns
        self.executing_since_ns = now_ns if self.batches else 0
        return max(0, now_ns - since_ns) if since_ns else 0

    def begin_next(self, now_ns: int) -> None:
        """Begin the next batch that was sent ahead and has waited until now."""
        if self.concurrency > 1:
            return  # nothing is sent ahead to these
        for batch in self.batches.values():
            for request in batch.requests:
                request.dispatched_ns = now_ns
            return

    def note_beginnings(self, batches: list[Executed], now_ns: int) -> None:
        """Record when batches were begun: until then their requests were in the queue."""
        self.reported = batches
        for executed in batches:
            number, _, _, _, begun_ns = executed
            batch = self.batches.get(number)
            if batch is not None and begun_ns:
                begun_ns = min(max(begun_ns, batch.dispatched_ns), now_ns)
                for request in batch.requests:
                    request.dispatched_ns = begun_ns

    @property
    def waiting(self) -> int:
        """Return the wanted requests that were sent ahead and wait for the batch before them."""
        if self.concurrency > 1:
            return 0
        ahead = itertools.islice(self.batches.values(), 1, None)
        return sum(not request.is_cancelled for batch in ahead for request in batch.requests)

    def may_take_ahead(self, max_batches: int) -> bool:
        """True if it may get one more batch while it executes another."""
        return (
            self.state is BUSY
            and self.progress is not None
            and self.concurrency == 1
            and not self.open_calls
            and self.membership is None
            and len(self.batches) < max_batches
            and EARLIER not in self.batches
        )

    def dismiss(self) -> None:
        """Give the instance no new work; it leaves now, or as soon as it has said hello."""
        self.is_dismissed = True
        if self.state is not Occupation.ABSENT:
            self.enter(InstanceEvent.DISMISSED)

    @property
    def has_left(self) -> bool:
        """True if it was dismissed and has nothing left to answer."""
        return self.state is Occupation.LEAVING and not self.batches and not self.open_requests

    def stop_giving(self) -> None:
        """Send nothing more to a process that is dead or unreachable."""
        self.enter(InstanceEvent.PARTED)

    def loss(self, reason: str) -> Unavailable:
        """Return the error for its unanswered requests when it dies."""
        return Unavailable(
            f"Failed to process the request(s) for model instance '{self.name}', message: "
            f"Stub process '{self.name}' is not healthy. ({reason})"
        )

    def die(self) -> tuple[list[InflightRequest], list[InflightRequest]]:
        """Return the requests that die with it, and those that it had not begun.

        Its page is read here for the last time.
        """
        self.enter(InstanceEvent.DIED)
        begun = self.progress.last_begun_batch if self.progress is not None else 0
        waiting = [
            request
            for batch in self.batches.values()
            if self.progress is not None and batch.number > begun
            for request in batch.requests
            if not request.has_run and self.open_requests.pop(request.key, None) is not None
        ]
        lost = list(self.open_requests.values())
        self.open_requests.clear()
        self.batches.clear()
        if self.progress is not None:
            self.progress.close()
        return lost, waiting
