"""The wait graph: which requests have to run before a request can, and by which ways.

It is read off from the instances each time, and nothing of it is kept. `deadlocks` searches it for
requests that can never run, and refuses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zmqtriton.broker.requests.inflight import InflightRequest, RequestState
from zmqtriton.broker.scheduling.instances import Instance, InstanceState
from zmqtriton.broker.scheduling.scheduler import Scheduler

#: Larger graphs than this are not searched.
_MAX_REQUESTS = 10_000
#: Instances in these states will end and be replaced.
_ENDING = (InstanceState.OVERDUE, InstanceState.LEAVING, InstanceState.DYING)

#: The alternatives by which a request may come to run; each needs all the requests that it lists.
_Ways = dict[InflightRequest, list[list[InflightRequest]]]


class WaitGraph:
    def __init__(
        self, instances: Mapping[int, Instance], schedulers: Mapping[int, Scheduler]
    ) -> None:
        self._instances = instances
        self._schedulers = schedulers

    def find_deadlock(
        self, request: InflightRequest, doubtful: set[int] | None = None
    ) -> set[InflightRequest]:
        """Return the request, and all that it needs that cannot run either, if it can never run.

        With `doubtful`, everybody who may wait is assumed to wait; the serials of those on whom the
        result depends are added to it.
        """
        supposed: set[int] | None = None if doubtful is None else set()
        ways = self._build(request, supposed)
        running: set[InflightRequest] = set()
        is_growing = ways is not None
        while is_growing and ways is not None:
            before = len(running)
            for one, alternatives in ways.items():
                if any(all(needed in running for needed in way) for way in alternatives):
                    running.add(one)
            is_growing = len(running) > before
        if ways is None or request in running:
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

    def name_circle(self, request: InflightRequest) -> list[str]:
        """Return the models of the circle that a request has closed, from its own on."""
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
        """Return all that a request may have to wait for, with the ways each may come to run.

        None if that is too much to search.
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
        """Return where a request may run, with the ways to get there.

        An empty way means that it will run by itself.
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


def _ways_to_begin(instance: Instance, supposed: set[int] | None) -> list[list[InflightRequest]]:
    """Return what an instance needs to begin another batch."""
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
    return [
        way for number in instance.batches for way in _ways_to_return(instance, number, supposed)
    ]


def _ways_to_return(
    instance: Instance, batch: int, supposed: set[int] | None
) -> list[list[InflightRequest]]:
    """Return what the execute() of a batch needs to return, or to go on."""
    if instance.blocking_calls:
        return [list(instance.blocking_calls.values())]
    awaited = _find_awaited(instance, batch)
    if awaited is None and supposed is not None and instance.open_calls:
        supposed.add(instance.serial)
        awaited = list(instance.open_calls.values())
    return [[]] if awaited is None else [[one] for one in awaited]


def _find_awaited(instance: Instance, batch: int) -> list[InflightRequest] | None:
    """Return the calls of which any one lets a batch go on; None if it may wait for nothing.

    A report of the process holds until it gets a reply that it did not have then.
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
