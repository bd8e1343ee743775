"""Deadlock detection: BLS requests that can never run, since their only executors wait for them.

A batch occupies its instance until execute() returns. If the batch's process has sent a request
with CALLER_BLOCKS, the batch waits for that request: the process is in its main thread, and
executes nothing until it gets the answer. Otherwise the process is asked, but only if its answer
could matter: when a request has been queued for a while, and could not run if every process with
open calls waited for them. A request can run if one of its model's instances is free, or waits for
a request that can run; a request that cannot run, but is waited for itself, is refused.

The graph of the requests that must run before a request is computed from the instances each time;
it is not stored.
"""

from __future__ import annotations

from collections.abc import Iterable

from zmqtriton.broker.metrics import statistics
from zmqtriton.broker.requests.inflight import InflightRequest, RequestState
from zmqtriton.broker.requests.protocols import RequestLifecycle
from zmqtriton.broker.scheduling.instances import Instance, Occupation
from zmqtriton.broker.state import BrokerPart, BrokerState
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument

#: The first pause between two searches; it grows while something stays queued.
_FIRST_LOOK_NS = 100_000_000
_LAST_LOOK_NS = 1_600_000_000
#: Maximum number of requests in a graph; larger ones are not searched.
_MAX_REQUESTS = 10_000
#: States of instances that will end and be replaced.
_ENDING = (Occupation.OVERDUE, Occupation.LEAVING, Occupation.DYING)

#: Alternatives for each request. It can run once all requests of one alternative can; an empty
#: alternative needs none.
_Ways = dict[InflightRequest, list[list[InflightRequest]]]


def _ways_to_begin(instance: Instance, supposed: set[int] | None) -> list[list[InflightRequest]]:
    """Return the ways for an instance to begin another batch, each with the requests it needs."""
    if instance.blocking_calls:
        return [list(instance.blocking_calls.values())]
    if instance.free_slots > 0 or not instance.batches:
        shared = instance.membership
        holders = shared.blockers() if shared is not None else []
        # Whichever of them ends first may free enough.
        ways = [
            w for one in holders for n in one.batches for w in _ways_to_return(one, n, supposed)
        ]
        return ways or [[]]
    if instance.streams is not None and len(instance.open_requests) > sum(
        len(batch.requests) for batch in instance.batches.values()
    ):
        return [[]]  # the execute() of an open request has returned, so that it may end by itself
    return [
        way for number in instance.batches for way in _ways_to_return(instance, number, supposed)
    ]


def _ways_to_return(
    instance: Instance, batch: int, supposed: set[int] | None
) -> list[list[InflightRequest]]:
    """Return the ways for the execute() of a batch to return, or to continue."""
    if instance.blocking_calls:
        return [list(instance.blocking_calls.values())]
    awaited = _find_awaited(instance, batch)
    if awaited is None and supposed is not None and instance.open_calls:
        supposed.add(instance.serial)
        awaited = list(instance.open_calls.values())
    return [[]] if awaited is None else [[one] for one in awaited]


def _find_awaited(instance: Instance, batch: int) -> list[InflightRequest] | None:
    """Return calls that a batch waits for; any one suffices. None if it may wait for none.

    A report of the process is valid until the process gets a reply that it did not have then.
    """
    reported = instance.reported_waits.get(batch) or instance.reported_waits.get(0) or [None]
    awaited = [
        one[0]
        for one in reported
        if one is not None
        and one[0].brokered_responses == one[1]
        and one[0].state is not RequestState.ANSWERED
        and not one[0].is_abandoned
    ]
    return awaited if len(awaited) == len(reported) else None


class Deadlocks(BrokerPart):
    def __init__(self, state: BrokerState, lifecycle: RequestLifecycle) -> None:
        super().__init__(state)
        self._lifecycle = lifecycle
        #: The unanswered calls of models, with the instance that made them.
        self.open_calls: dict[tuple[int, int], Instance] = {}
        #: Calls and steps that may still be queued; check_due() is called while there are any.
        self.timed = state.awaited
        #: Calls and steps since the last check, if their caller certainly waits for them.
        self.fresh: list[InflightRequest] = []
        self._look_at_ns = 0
        self._pause_ns = _FIRST_LOOK_NS

    def add(self, request: InflightRequest, now_ns: int) -> None:
        """Add a call of a model, or a step of an ensemble: a model may wait for it."""
        instance = self._instances.get(request.peer)
        if instance is not None:
            self.open_calls[request.key] = instance
            instance.open_calls[request.key] = request
            if request.flags & wire.CALLER_BLOCKS:
                instance.blocking_calls[request.key] = request
        if not self.open_calls:
            return
        if not self.timed:
            self._pause_ns = _FIRST_LOOK_NS
            self._look_at_ns = now_ns + self._pause_ns
        self.timed[request.key] = request
        if instance is None or request.flags & wire.CALLER_BLOCKS:
            self.fresh.append(request)

    def discard(self, request: InflightRequest) -> None:
        """Forget an answered request."""
        self.timed.pop(request.key, None)
        instance = self.open_calls.pop(request.key, None)
        if instance is not None:
            del instance.open_calls[request.key]
            instance.blocking_calls.pop(request.key, None)

    def check_new(self, now_ns: int) -> None:
        """Refuse new calls that can never run."""
        fresh, self.fresh = self.fresh, []
        for request in fresh:
            if request.state is RequestState.QUEUED and request in self._find_deadlock(request):
                self._refuse(request, now_ns)

    def next_due_ns(self) -> int | None:
        """Return the time when check_due() has work to do; None: never."""
        return self._look_at_ns if self.timed else None

    def check_due(self, now_ns: int) -> None:
        """Ask the processes whose reports decide whether queued requests can ever run."""
        if not self.timed or now_ns < self._look_at_ns:
            return
        waiting = self._queued_by_generation()
        self._look_at_ns = now_ns + self._pause_ns
        self._pause_ns = min(2 * self._pause_ns, _LAST_LOOK_NS)
        doubtful: set[int] = set()
        for requests in waiting:
            self._find_deadlock(requests[0], doubtful)
        self._outbox.asides += [(serial, wire.WaitReport([])) for serial in sorted(doubtful)]
        self._break_deadlocks(now_ns)

    def take_report(self, serial: int, message: wire.WaitReport, now_ns: int) -> None:
        """Process a report of the calls that a process's batches wait for."""
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
        """Return the queued requests by generation; one of them can run if all of them can run."""
        queued = RequestState.QUEUED
        for key in [key for key, one in self.timed.items() if one.state is not queued]:
            del self.timed[key]
        by_generation: dict[int, list[InflightRequest]] = {}
        for one in self.timed.values():
            if not one.stub:
                by_generation.setdefault(one.generation.number, []).append(one)
        return list(by_generation.values())

    def _break_deadlocks(self, now_ns: int) -> None:
        """Refuse the requests that closed a circle, the last one first."""
        while closing := [
            one
            for requests in self._queued_by_generation()
            for stuck in [self._find_deadlock(requests[0])]
            for one in requests
            if one in stuck
        ]:
            self._refuse(max(closing, key=lambda one: one.arrived_ns), now_ns)

    def _refuse(self, request: InflightRequest, now_ns: int) -> None:
        names = self._name_circle(request)
        where = f"Model {names[0]} - Error when running inference: "
        error = InvalidArgument(f"{where}BLS calls would deadlock: {' -> '.join(names)}")
        request.generation.statistics.record_refusal(statistics.DEADLOCK)
        self._lifecycle.refuse(request, error, statistics.OTHER, now_ns)

    # ------------------------------------------------------------- the graph of waits

    def _find_deadlock(
        self, request: InflightRequest, doubtful: set[int] | None = None
    ) -> set[InflightRequest]:
        """Return the requests that keep a request from ever running; empty if it can run.

        The request itself is one of them if others wait for it in turn. With `doubtful`, each
        process that may wait for its open calls is assumed to wait, and the serial numbers of the
        processes that the result depends on are added to this set.
        """
        supposed: set[int] | None = None if doubtful is None else set()
        ways = self._build(request, supposed)
        if ways is None:
            return set()
        running: set[InflightRequest] = set()
        before = -1
        while len(running) > before:
            before = len(running)
            for one, alternatives in ways.items():
                if any(all(needed in running for needed in way) for way in alternatives):
                    running.add(one)
        if request in running:
            return set()
        if doubtful is not None and supposed is not None:
            doubtful |= supposed
        stuck: set[InflightRequest] = set()
        waiting = [request]
        while waiting:
            needed = {n for way in ways[waiting.pop()] for n in way if n not in running}
            waiting += needed - stuck
            stuck |= needed
        return stuck

    def _name_circle(self, request: InflightRequest) -> list[str]:
        """Return the models of the circle that a request has closed, beginning with its own."""
        start, names, seen = request, [request.generation.model], {request}
        while True:
            needed: list[InflightRequest] = []
            for place in self._ways_by_instance(request, None):
                everything = [one for way in place for one in way]
                # Any one of them is enough, unless all of them are needed.
                needed += (
                    place[0] if len(place) == 1 else [start if start in everything else place[0][0]]
                )
            # Go on to a request that was not seen yet, so that the whole circle is named.
            request = next((one for one in needed if one not in seen), needed[0])
            names.append(request.generation.model)
            if request in seen:
                return names
            seen.add(request)

    def _build(self, request: InflightRequest, supposed: set[int] | None) -> _Ways | None:
        """Return all requests that a request may wait for, with the ways for each to run.

        None if there are too many to search.
        """
        ways: _Ways = {}
        waiting = [request]
        while waiting:
            one = waiting.pop()
            if one in ways:
                continue
            ways[one] = [way for place in self._ways_by_instance(one, supposed) for way in place]
            if [] not in ways[one]:
                waiting += [needed for way in ways[one] for needed in way]
            if len(ways) > _MAX_REQUESTS:
                return None
        return ways

    def _ways_by_instance(
        self, request: InflightRequest, supposed: set[int] | None
    ) -> Iterable[list[list[InflightRequest]]]:
        """Return the ways for a request to run, for each instance that may execute it.

        An empty way: it will run by itself.
        """
        if request.steps is not None:
            return [[list(request.steps)]]
        instance = self._instances.get(request.stub)
        if instance is not None and request.state is RequestState.QUEUED:
            return [_ways_to_begin(instance, supposed)]
        if instance is not None:
            for batch in instance.batches.values():
                if request in batch.requests:
                    return [_ways_to_return(instance, batch.number, supposed)]
            return [[[]]]  # it is not in the hands of an execute()
        of_model = self._schedulers[request.generation.number].instances.values()
        instances = [one for one in of_model if one.state not in _ENDING]
        if len(instances) < request.generation.expected:
            return [[[]]]  # the missing instance may come
        return [_ways_to_begin(instance, supposed) for instance in instances]
