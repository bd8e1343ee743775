"""Rescheduling: requests that models execute step by step, each step in the same stub.

A step ends when the stub asks for another execution. Until then the request waits like any other
and may be cancelled; but since it has run, it dies with its stub.
"""

from __future__ import annotations

from zmqtriton.broker.metrics import statistics
from zmqtriton.broker.requests.answers import CANCELLED
from zmqtriton.broker.requests.inflight import RequestState
from zmqtriton.broker.requests.protocols import Refuses
from zmqtriton.broker.requests.recovery import Recovery
from zmqtriton.broker.scheduling.instances import Instance
from zmqtriton.broker.state import BrokerPart, BrokerState
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unavailable

_LOST = Unavailable("the broker died before the rescheduled request could be executed again")


class Rescheduling(BrokerPart):
    def __init__(self, state: BrokerState, lifecycle: Refuses, recovery: Recovery) -> None:
        super().__init__(state)
        self._lifecycle = lifecycle
        self._recovery = recovery

    def reschedule(self, instance: Instance, routes: list[wire.RequestKey], now_ns: int) -> None:
        """Queue requests again, as their stub has asked."""
        scheduler = self._schedulers[instance.generation]
        for route in routes:
            request = instance.open_requests.get(route)
            if request is None:
                # The client of an earlier broker has not repeated it here yet.
                outcome = wire.Outcome(*route, _LOST.number, _LOST.text, wire.FINAL)
                if not self._recovery.keep(instance.serial, outcome, b"", now_ns):
                    self._traffic.malformed += 1
                self._outbox.cancel_execution(instance.serial, route)
            elif (
                request.state is not RequestState.EXECUTING or not scheduler.generation.is_iterative
            ):
                self._traffic.malformed += 1
            elif not scheduler.reschedule(request, now_ns):
                self._outbox.cancel_execution(instance.serial, route)
                self._lifecycle.refuse(request, _LOST, statistics.BACKEND, now_ns)
            elif request.is_cancelled:
                self._lifecycle.refuse(request, CANCELLED, statistics.CANCELED, now_ns)
