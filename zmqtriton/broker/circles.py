"""Finds requests of models that can never run, since whoever could run them waits for them.

A process that has asked with WAITS executes nothing until it is answered. So a request can run only
if, at one of the instances of its model, everything that is waited for can run. What cannot closes
with the last request that came: the core hands each of them over, and refuses those found here.
"""

from __future__ import annotations

from zmqtriton.broker.inflight import Inflight, RequestState
from zmqtriton.broker.instances import Instance
from zmqtriton_floor.errors import InvalidArgument, ZmqTritonError

#: Beyond so many requests it is not worth knowing.
_MOST = 10_000


class Circles:
    def __init__(self, instances: dict[int, Instance]) -> None:
        """`instances` are the core's, by serial."""
        self._instances = instances
        #: Who waits for what.
        self._waiting: dict[tuple[int, int], Instance] = {}
        #: Since the last look.
        self._fresh: list[Inflight] = []

    def add(self, request: Inflight) -> None:
        """A process waits for it, or it is a step of an ensemble, for which a process may wait."""
        instance = self._instances.get(request.peer)
        if instance is not None:
            instance.waits[request.route] = request
            self._waiting[request.route] = instance
        if self._waiting:
            self._fresh.append(request)

    def discard(self, request: Inflight) -> None:
        """It is answered."""
        instance = self._waiting.pop(request.route, None)
        if instance is not None:
            del instance.waits[request.route]

    def find(self) -> list[tuple[Inflight, ZmqTritonError]]:
        """Those of the fresh ones that can never run, and what to answer."""
        found: list[tuple[Inflight, ZmqTritonError]] = []
        fresh, self._fresh = self._fresh, []
        for request in fresh:
            if request.state is RequestState.QUEUED and self._is_stuck(request):
                found.append((request, _error(request)))
        return found

    def _is_stuck(self, request: Inflight) -> bool:
        """Whether it can never run. Starts from none that can, and adds those that follow."""
        ways = _reach(request)
        if ways is None:
            return False
        running: set[Inflight] = set()
        is_growing = True
        while is_growing:
            before = len(running)
            for one, alternatives in ways.items():
                if any(all(needed in running for needed in way) for way in alternatives):
                    running.add(one)
            is_growing = len(running) > before
        return request not in running


def _reach(request: Inflight) -> dict[Inflight, list[list[Inflight]]] | None:
    """All that it may have to wait for, each with its ways to run; None: that is too much."""
    ways: dict[Inflight, list[list[Inflight]]] = {}
    waiting = [request]
    while waiting:
        one = waiting.pop()
        if one in ways:
            continue
        ways[one] = _ways(one)
        if [] not in ways[one]:
            waiting += [needed for way in ways[one] for needed in way]
        if len(ways) > _MOST:
            return None
    return ways


def _ways(request: Inflight) -> list[list[Inflight]]:
    """What a request needs: all of one of these. An empty one: it will run by itself."""
    if request.run is not None:
        return [list(request.run.open.values())]
    if request.instance is not None:
        if request.state is RequestState.QUEUED or request.instance.executes(request):
            return [list(request.instance.waits.values())]
        return [[]]  # it is in other hands than those of execute()
    instances = [i for i in request.generation.instances.values() if not i.is_dying]
    if len(instances) < request.generation.expected:
        return [[]]  # the missing one may come
    return [list(instance.waits.values()) for instance in instances]


def _error(request: Inflight) -> InvalidArgument:
    names = [request.generation.model]
    seen = {request}
    while True:
        needed = [one for way in _ways(request) for one in way]
        # On to what was not seen yet, so that the whole circle is named.
        request = next((one for one in needed if one not in seen), needed[0])
        names.append(request.generation.model)
        if request in seen:
            break
        seen.add(request)
    where = f"Model {names[0]} - Error when running inference: "
    return InvalidArgument(
        f"{where}BLS calls form a circle that can not finish: {' -> '.join(names)}"
    )
