"""Recovery after a broker's death: reports of the processes to the new one, and decisions.

No request runs twice: a repeated one is executed only if no stub can have begun it for an earlier
broker. That is so because of each stub of its model one of these is true:

* It has said hello, and told what it has, and what it has answered in the last second; answers
  before that have left the broker, so their requests are not repeated.
* It is silent, but the broker has fenced it off, and its page names what it may have begun.
* It is dead, and no broker had taken note of that: its page, which the supervisor keeps for a
  while, names what it may have begun. Without a page, or if that says that they are too many to
  name, whatever is repeated for its model may have run, and is refused.
* It is dead, or has been drained, and an earlier broker has done with it: all that it had begun was
  answered, finally, and the answers had left that broker; the rest had been given to others. That
  broker has said so (`wire.Settled`), and the supervisor no longer tells of the stub.

An answer has left when the kernel has it: its reader takes everything from the connection to a dead
broker before it repeats what is unanswered. A broker that itself has followed another says
`Settled` only when no process is left that may still repeat a request of that time (`once_over`),
since what it knows of a stub would die with it.

What stubs cannot know, the broker itself writes down (`begun_requests`): which runs of ensembles
have begun, and which answers it keeps back. Who holds which blocks only their holders know: when
all have reported, owners free the rest. The core passes on what is said; this knows no sockets.

The machines that follow from these rules:

    request   repeated ──▶ undecided ──▶ awaited    a stub has it, and its outcomes go on
                            │  ▲      ├▶ answered   a stub had answered it before it was repeated
                            └──┘      ├▶ queued     no stub can have begun it
                                      └▶ refused    a dead stub may have begun it, its answer was
                                                    kept back, or its instance was removed
    run       repeated ──▶ undecided ──▶ begun anew, or refused if a step of it had begun
    outcome   early ──▶ delivered    its request was repeated and decided about
                    └─▶ dropped      its client is dead, or has repeated its requests without it
    recovery  open ──▶ over          all processes have come, LEFTOVER_NS ago or earlier
    leases    awaited ──▶ settled    each process has reported, or died

A request stays undecided while a silent stub of its model may have begun it (of a run of an
ensemble, any silent stub its first step). `resolve_waiting` looks again after each hello and each
death, and `tick` once the pages of fenced stubs can be relied on. A decision is final. It is made
of four facts, in this order: the stub that has reported the request (`_received`), the outcomes
that came early (`_early_outcomes`), the answers that the earlier broker kept back, and the pages
of stubs that died silently (`_unheard`). Only a request without any of them is queued.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection

from zmqtriton.broker.metrics import statistics
from zmqtriton.broker.requests.inflight import InflightRequest, RequestState
from zmqtriton.broker.requests.protocols import RequestLifecycle
from zmqtriton.broker.scheduling.generation import BrokerGeneration
from zmqtriton.broker.scheduling.instances import ExecutionProgress
from zmqtriton.broker.state import BrokerPart, BrokerState
from zmqtriton_floor.errors import Unavailable
from zmqtriton_floor.execution_progress import FENCE_NS, RequestKey
from zmqtriton_floor.settings.broker import BrokerSettings
from zmqtriton_floor.wire import BROKER, FINAL, HeldBlocks, Outcome

#: A stub, and an outcome it sent with its body.
Saying = tuple[int, Outcome, bytes]

#: Time after which outcomes are dropped whose requests were not repeated: clients that have said
#: hello repeat theirs at once.
LEFTOVER_NS = 10_000_000_000
#: Interval between checks whether all processes have come that may repeat requests.
_LOOK_NS = 1_000_000_000
_GUEST = "guest"

_UNHEARD = Unavailable(
    "the broker has died, and a model instance has ended before it could tell the next one what it "
    "had begun: the request may have been executed"
)
_KEPT_BACK = Unavailable(
    "the broker died while it kept the answer back for those to earlier requests"
)
RUN_LOST = Unavailable("the broker died while the ensemble was being executed")
_REMOVED = Unavailable(
    "the broker has died, and the model instance that had begun the request was removed"
)


class Recovery(BrokerPart):
    """The state of a recovery; empty and idle in the first broker of a server."""

    def __init__(self, state: BrokerState, lifecycle: RequestLifecycle) -> None:
        super().__init__(state)
        self._lifecycle = lifecycle
        self._blocks.early_blocks = lambda: (
            block
            for said in self._early_outcomes.values()
            for _, outcome, _ in said
            for block in outcome.blocks
        )
        self._received = state.received
        #: Outcomes that came before the request was repeated, in their order.
        self._early_outcomes: dict[RequestKey, list[Saying]] = {}
        #: Times of the checks whether these outcomes are still wanted, soonest first.
        self._leftover_checks: deque[tuple[int, RequestKey]] = deque()
        #: Requests that wait for the stubs of their model, by generation.
        self._waiting: dict[int, list[InflightRequest]] = {}
        #: Time of the next decision about them without a message from a process; 0 for never.
        self._look_again_ns = 0
        #: True if something depends on the time.
        self.timed = False
        #: Requests that stubs may have begun before they died without a hello, by number and by
        #: model of their generation; None if that is not known.
        self._unheard: dict[int | str, frozenset[RequestKey] | None] = {}
        #: True if no process may still repeat a request of an earlier broker's time.
        self._is_over = True
        #: Time when that became true; 0 before, and in the server's first broker.
        self.over_ns = 0
        #: Time since when all processes are here that may repeat requests; 0 while some are not.
        self._all_here_ns = 0
        #: Actions to perform at the end of the recovery, and the time of the next check; 0 for
        #: never.
        self._once_over: list[Callable[[], object]] = []
        self._look_over_ns = 0
        #: The processes that have yet to report their leases; None until the supervisor has
        #: announced all of them.
        self._unreported_peers: set[int] | None = None
        self._reported_peers: set[int] = set()
        self._is_settled = False
        #: Roles of the processes that repeat requests and read large tensors, except stubs.
        self._askers = frozenset({*BrokerSettings().serving_roles, _GUEST})

    def begin(self, epoch: int, serving_roles: Collection[str]) -> None:
        """Begin; the server's first broker has the epoch 1, and nothing to recover.

        Processes of these roles read large tensors and repeat requests, and so do guests. Stubs
        repeat only calls for requests that they have.
        """
        self._is_over = epoch <= 1
        self._askers = frozenset({*serving_roles, _GUEST})

    # --------------------------------------------------------------- requests

    def take_hello(
        self,
        stub: int,
        received: Collection[RequestKey],
        answered: Collection[tuple[Outcome, bytes]],
        now_ns: int,
    ) -> None:
        """Process a stub's hello."""
        keys = [*received, *((outcome.peer, outcome.id) for outcome, _ in answered)]
        self._begun.confirm_steps(own_id for peer, own_id in keys if peer == BROKER)
        for peer, own_id in received:
            self._received[peer, own_id] = stub
            if peer not in self._peers:  # its client is dead, or was the earlier broker itself
                self._outbox.cancel_execution(stub, (peer, own_id))
        for outcome, body in answered:
            self._blocks.lease_repeated(stub, outcome)
            self._keep((outcome.peer, outcome.id), (stub, outcome, body), now_ns)

    def keep(self, stub: int, outcome: Outcome, body: bytes, now_ns: int) -> bool:
        """Keep a response that came before its request was repeated.

        False if it was not expected.
        """
        route = (outcome.peer, outcome.id)
        if self._received.get(route) != stub:
            return False
        if outcome.flags & FINAL:
            del self._received[route]
        self._keep(route, (stub, outcome, body), now_ns)
        return True

    def count_received(self, stub: int) -> int:
        """Return the number of a stub's requests that have not been repeated yet."""
        return sum(one == stub for one in self._received.values())

    def _keep(self, route: RequestKey, saying: Saying, now_ns: int) -> None:
        if route[0] not in self._peers:
            self._blocks.discard(saying[0], saying[1])
            return
        said = self._early_outcomes.get(route)
        if said is None:
            said = self._early_outcomes[route] = []
            self._leftover_checks.append((now_ns + LEFTOVER_NS, route))
            self.timed = True
        said.append(saying)

    def take_resent(self, request: InflightRequest, now_ns: int) -> None:
        """Decide about a request that an earlier broker had, or let it wait."""
        request.is_undecided = True
        waiting = self._waiting.setdefault(request.generation.number, [])
        if waiting and self._look_again_ns:
            # It is decided about together with those before it: thousands may come at once.
            waiting.append(request)
            return
        undecided = self._resolve(request.generation.number, [request], now_ns)
        if undecided:
            waiting += undecided
            # By then the pages of stubs that are executing can be relied on.
            self._look_again_ns = self._look_again_ns or now_ns + 2 * FENCE_NS
            self.timed = True

    def note_silent_death(
        self, generation: BrokerGeneration, progress: ExecutionProgress | None
    ) -> None:
        """Record the death of a stub without a hello; its page has requests that may have begun."""
        begun = progress.begun_keys() if progress is not None else None
        steps = (own_id for peer, own_id in begun if peer == BROKER) if begun is not None else None
        self._begun.confirm_steps(steps)
        for name in (generation.number, generation.model):
            unheard = self._unheard.get(name, frozenset())
            self._unheard[name] = None if unheard is None or begun is None else unheard | begun

    def forget_peer(self, peer: int, loss: Unavailable, now_ns: int) -> None:
        """Forget a dead process: it will neither repeat requests nor answer them.

        `loss` is the error of the requests that it had received.
        """
        for route in [route for route in self._early_outcomes if route[0] == peer]:
            self._drop(route)
        for route in [route for route, stub in self._received.items() if stub == peer]:
            # Its client has yet to repeat it, and it must not be executed again then.
            del self._received[route]
            lost = Outcome(*route, loss.number, loss.text, FINAL)
            self._keep(route, (peer, lost, b""), now_ns)
        for (asker, own_id), stub in self._received.items():
            if asker == peer:
                self._outbox.cancel_execution(stub, (asker, own_id))
        self._mark_reported(peer)

    def _drop(self, route: RequestKey) -> None:
        for stub, outcome, _ in self._early_outcomes.pop(route, []):
            self._blocks.discard(stub, outcome)

    # --------------------------------------------------------------- decisions

    def resolve_waiting(self, now_ns: int) -> None:
        """Decide about waiting requests that no silent stub of their model may have begun."""
        for number in list(self._waiting):
            undecided = self._resolve(number, self._waiting.pop(number), now_ns)
            if undecided:
                self._waiting[number] = undecided

    def _resolve(
        self, number: int, requests: list[InflightRequest], now_ns: int
    ) -> list[InflightRequest]:
        """Decide about requests for a generation; return the requests that must wait."""
        generation = self._generations.by_number.get(number)
        if generation is None:
            silent = []
        elif generation.plan is None:
            silent = self._generations.silent_instances(generation.model)
        else:
            silent = [stub for stub in self._instances.values() if not stub.has_arrived]
        undecided = []
        for request in requests:
            if request.state is not RequestState.QUEUED:
                continue
            key = request.key
            if request.generation.plan is not None:  # of a run, stubs know the first step
                key = BROKER, self._begun.step_in_doubt(key)
            if any(stub.may_have_begun(key, now_ns) for stub in silent):
                undecided.append(request)
            elif request.generation.plan is None:
                self._decide(request, now_ns)
            else:
                self._decide_run(request, now_ns)
        return undecided

    def _decide_run(self, request: InflightRequest, now_ns: int) -> None:
        request.is_undecided = False
        if self._begun.had_begun(request.key):
            self._lifecycle.refuse(request, RUN_LOST, statistics.OTHER, now_ns)
        else:
            if self._begun.step_in_doubt(request.key):
                self._begun.forget(request.key)
            self._lifecycle.begin_run(request, now_ns)

    def _decide(self, request: InflightRequest, now_ns: int) -> None:
        generation, request.is_undecided = request.generation, False
        scheduler = self._generations.schedulers[generation.number]
        said = self._early_outcomes.pop(request.key, [])
        stub = self._received.pop(request.key, None)
        # It may be an instance of an earlier generation, or of the next.
        instance = self._instances.get(stub or (said[0][0] if said else 0))
        if not said and stub is None:
            names = (request.asked_of, generation.number)
            unheard = [self._unheard.get(name, frozenset()) for name in names]
            if generation.order is not None and self._begun.had_begun(request.key):
                self._lifecycle.refuse(request, _KEPT_BACK, statistics.BACKEND, now_ns)
            elif any(begun is None or request.key in begun for begun in unheard):
                self._lifecycle.refuse(request, _UNHEARD, statistics.BACKEND, now_ns)
            else:
                scheduler.requeue(request)
                self._lifecycle.await_turn(request)
            return
        if instance is not None:
            scheduler.leave_queue(request)
            instance.resume(request, now_ns)
        for source, outcome, body in said:
            self._lifecycle.respond(source, request, outcome, body, now_ns)
        if instance is None and request.state is not RequestState.ANSWERED:
            self._lifecycle.refuse(request, _REMOVED, statistics.BACKEND, now_ns)

    # ----------------------------------------------------------------- the end

    def once_over(self, act: Callable[[], object]) -> None:
        """Call `act` once no process may still repeat a request from an earlier broker's time."""
        if self._is_over:
            act()
            return
        self._once_over.append(act)
        self._look_over_ns = self._look_over_ns or 1  # at the next tick
        self.timed = True

    def _check_over(self, now_ns: int) -> None:
        """End the recovery once all processes that may repeat requests are here for long enough."""
        is_awaiting = any(
            peer.role in self._askers and not peer.has_resent for peer in self._peers.values()
        ) or any(not instance.has_arrived for instance in self._instances.values())
        self._all_here_ns = 0 if is_awaiting else self._all_here_ns or now_ns
        if self._all_here_ns and now_ns - self._all_here_ns >= LEFTOVER_NS:
            self._is_over, self.over_ns, self._look_over_ns = True, now_ns, 0
            self._unheard.clear()
            for route, stub in self._received.items():  # its client left while a broker was dead
                self._outbox.cancel_execution(stub, route)
            acts, self._once_over = self._once_over, []
            for act in acts:
                act()
        else:
            self._look_over_ns = now_ns + _LOOK_NS

    # ------------------------------------------------------------------ blocks

    def await_lease_reports(self) -> None:
        """Wait for the lease reports of all processes that existed before this broker."""
        if self._unreported_peers is None:
            readers = {s for s, peer in self._peers.items() if peer.role in self._askers}
            self._unreported_peers = (readers | self._instances.keys()) - self._reported_peers
            self._settle_if_all_told()

    def take_held_blocks(self, holder: int, message: HeldBlocks) -> None:
        """Process a report of the blocks that a process has held since before this broker."""
        self._blocks.take_report(holder, message.blocks)
        if message.is_last:
            self._mark_reported(holder)

    def _mark_reported(self, holder: int) -> None:
        """Expect no further lease report of a process, after its last one or its death."""
        if not self._is_settled:
            self._reported_peers.add(holder)
        if self._unreported_peers is not None:
            self._unreported_peers.discard(holder)
            self._settle_if_all_told()

    def _settle_if_all_told(self) -> None:
        if not self._unreported_peers and not self._is_settled:
            self._is_settled = True
            self._blocks.settled_epoch = self._blocks.epoch
            self._outbox.reported_owners += [s for s in self._reported_peers if s in self._peers]
            self._reported_peers.clear()

    # ------------------------------------------------------------------- time

    def next_due_ns(self) -> int | None:
        """Return the time when tick() has work to do; None: never."""
        first = self._leftover_checks[0][0] if self._leftover_checks else 0
        return min(filter(None, (first, self._look_again_ns, self._look_over_ns)), default=None)

    def tick(self, now_ns: int) -> None:
        """Do the work that is due."""
        if self._look_again_ns and self._look_again_ns <= now_ns:
            self._look_again_ns = 0
            self.resolve_waiting(now_ns)
        # early outcomes whose requests were not repeated in time
        while self._leftover_checks and self._leftover_checks[0][0] <= now_ns:
            _, route = self._leftover_checks.popleft()
            peer = self._peers.get(route[0])
            # it says hello late if it executes; or it has repeated the request, which waits here
            may_ask = peer is not None and (not peer.has_resent or route[1] in peer.requests)
            if may_ask and route in self._early_outcomes:
                self._leftover_checks.append((now_ns + LEFTOVER_NS, route))
            else:
                self._drop(route)
        if 0 < self._look_over_ns <= now_ns:
            self._check_over(now_ns)
        self.timed = bool(self._look_again_ns or self._leftover_checks or self._look_over_ns)
