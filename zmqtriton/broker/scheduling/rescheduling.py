"""Requests that models have executed step by step, each step one execution by the same stub.

A step ends with the stub saying that the request is to be executed again. Meanwhile it waits here
like any other, and may be cancelled; but it has run, so it dies with its stub. Part of the core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zmqtriton.broker.metrics import statistics
from zmqtriton.broker.requests.answers import CANCELLED
from zmqtriton.broker.requests.inflight import RequestState
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unavailable

if TYPE_CHECKING:
    from zmqtriton.broker.core import Core
    from zmqtriton.broker.scheduling.instances import Instance

_LOST = Unavailable("the request was to be executed again, and that was lost with the broker")


class Iterations:
    def __init__(self, core: Core) -> None:
        self._core = core

    def take(self, instance: Instance, routes: list[wire.RequestKey], now_ns: int) -> None:
        """A stub wants these to be executed again."""
        core = self._core
        generation = core.generations[instance.generation]
        for route in routes:
            request = instance.open.get(route)
            if request is None:
                # Whoever asked an earlier broker has not asked this one yet.
                outcome = wire.Outcome(*route, _LOST.number, _LOST.text, wire.FINAL)
                if not core.recovery.keep(instance.serial, outcome, b"", now_ns):
                    core.malformed += 1
                core.outbox.abandon(instance.serial, route)
            elif request.state is not RequestState.EXECUTING or not generation.is_iterative:
                core.malformed += 1
            else:
                generation.take_again(request, now_ns)
                if request.is_cancelled:
                    core.refuse(request, CANCELLED, statistics.CANCELED, now_ns)
                elif request.sequence is None:  # an earlier broker had given it one
                    core.refuse(request, _LOST, statistics.BACKEND, now_ns)
