"""Deadlock detection: BLS requests that can never run, since their only executors wait for them.

A batch holds its instance until execute() returns. What it waits for is known if its process has
sent a request with CALLER_BLOCKS: then it is in the main thread, and executes nothing until that is
answered. Otherwise the process is asked, but only if it could matter: when a request has been
queued for a while, and could not run if every process with open calls waited for them. A request
can run if, at one of the instances of its model, something that is waited for can run; a request
that cannot, and is waited for itself, is refused.
"""

from __future__ import annotations

from zmqtriton.broker.metrics import statistics
from zmqtriton.broker.outbox import Outbox
from zmqtriton.broker.peers import Peer
from zmqtriton.broker.requests.inflight import InflightRequest, RequestState
from zmqtriton.broker.requests.protocols import Refuses
from zmqtriton.broker.requests.wait_graph import WaitGraph
from zmqtriton.broker.scheduling.generation import Generation
from zmqtriton.broker.scheduling.instances import Instance
from zmqtriton.broker.scheduling.scheduler import Scheduler
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument

#: The first pause between two searches; it grows while something stays queued.
_FIRST_LOOK_NS = 100_000_000
_LAST_LOOK_NS = 1_600_000_000


class Deadlocks:
    def __init__(
        self,
        lifecycle: Refuses,
        outbox: Outbox,
        peers: dict[int, Peer],
        instances: dict[int, Instance],
        schedulers: dict[int, Scheduler],
    ) -> None:
        self._lifecycle = lifecycle
        self._outbox = outbox
        self._peers = peers
        self._instances = instances
        self._graph = WaitGraph(instances, schedulers)
        #: The unanswered calls of models, with the instance that made them.
        self.open_calls: dict[tuple[int, int], Instance] = {}
        #: Those of the unanswered calls, and of the steps of ensembles, that may still be queued.
        self.timed: dict[tuple[int, int], InflightRequest] = {}
        #: Calls since the last event for which somebody certainly waits.
        self.fresh: list[InflightRequest] = []
        self._look_at_ns = 0
        self._pause_ns = _FIRST_LOOK_NS

    def add(self, request: InflightRequest, now_ns: int) -> None:
        """Add a call of a model, or a step of an ensemble, for which a model may wait."""
        instance = self._instances.get(request.peer)
        if instance is not None:
            self.open_calls[request.key] = instance
            instance.open_calls[request.key] = request
            if request.row.flags & wire.CALLER_BLOCKS:
                instance.blocking_calls[request.key] = request
        if not self.open_calls:
            return
        if not self.timed:
            self._pause_ns = _FIRST_LOOK_NS
            self._look_at_ns = now_ns + self._pause_ns
        self.timed[request.key] = request
        if instance is None or request.row.flags & wire.CALLER_BLOCKS:
            self.fresh.append(request)

    def is_awaited(self, generation: Generation) -> bool:
        """True if a model may wait for this queued request."""
        queued = RequestState.QUEUED
        return any(r.generation is generation and r.state is queued for r in self.timed.values())

    def discard(self, request: InflightRequest) -> None:
        """Forget an answered request."""
        self.timed.pop(request.key, None)
        instance = self.open_calls.pop(request.key, None)
        if instance is not None:
            del instance.open_calls[request.key]
            instance.blocking_calls.pop(request.key, None)

    def check_new(self, now_ns: int) -> None:
        """Refuse those of the new calls that can never run."""
        fresh, self.fresh = self.fresh, []
        for request in fresh:
            if request.state is RequestState.QUEUED and request in self._graph.find_deadlock(
                request
            ):
                self._refuse(request, now_ns)

    def next_due_ns(self) -> int | None:
        """When check_due() has work to do."""
        return self._look_at_ns if self.timed else None

    def check_due(self, now_ns: int) -> None:
        """Ask the processes whose word decides whether queued requests can ever run."""
        if not self.timed or now_ns < self._look_at_ns:
            return
        waiting = self._queued_by_generation()
        self._look_at_ns = now_ns + self._pause_ns
        self._pause_ns = min(2 * self._pause_ns, _LAST_LOOK_NS)
        doubtful: set[int] = set()
        for requests in waiting:
            self._graph.find_deadlock(requests[0], doubtful)
        self._outbox.asides += [(serial, wire.WaitReport([])) for serial in sorted(doubtful)]
        self._break_deadlocks(now_ns)

    def take_report(self, serial: int, message: wire.WaitReport, now_ns: int) -> None:
        """Take a process's report of what its batches wait for."""
        instance = self._instances.get(serial)
        if instance is None:
            return
        requests = self._peers[serial].requests
        instance.reported_waits = {}
        for row in message.edges:
            request = requests.get(row.id)
            awaited = instance.reported_waits.setdefault(row.batch, [])
            # None if it has been answered meanwhile, so that the batch may go on.
            awaited.append(None if request is None else (request, row.received))
        self._break_deadlocks(now_ns)

    def _queued_by_generation(self) -> list[list[InflightRequest]]:
        """Return the queued requests by generation; one of them can run if all can."""
        queued = RequestState.QUEUED
        self.timed = {r: one for r, one in self.timed.items() if one.state is queued}
        by_generation: dict[int, list[InflightRequest]] = {}
        for one in self.timed.values():
            if not one.stub:
                by_generation.setdefault(one.generation.number, []).append(one)
        return list(by_generation.values())

    def _break_deadlocks(self, now_ns: int) -> None:
        """Refuse the requests that closed a circle, the last one first."""
        while True:
            closing = [
                one
                for requests in self._queued_by_generation()
                for stuck in [self._graph.find_deadlock(requests[0])]
                for one in requests
                if one in stuck
            ]
            if not closing:
                return
            self._refuse(max(closing, key=lambda one: one.arrived_ns), now_ns)

    def _refuse(self, request: InflightRequest, now_ns: int) -> None:
        names = self._graph.name_circle(request)
        where = f"Model {names[0]} - Error when running inference: "
        error = InvalidArgument(f"{where}BLS calls would deadlock: {' -> '.join(names)}")
        request.generation.statistics.record_refusal(statistics.DEADLOCK)
        self._lifecycle.refuse(request, error, statistics.OTHER, now_ns)
