"""The requests that wait until the supervisor has loaded their model on demand.

These are requests of models that call others by name, and requests whose model was unloaded while
they were on their way; for all others the frontends wait. The core hands over requests that it
would refuse. When the supervisor has answered, each request is submitted again or refused; it is
also refused after a timeout.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import NamedTuple

from zmqtriton.broker.requests.answers import CANCELLED, Answers
from zmqtriton.broker.requests.inflight import Batch
from zmqtriton.broker.scheduling.generations import NotServed
from zmqtriton.broker.state import BrokerPart, BrokerState
from zmqtriton_floor import wire
from zmqtriton_floor.errors import DeadlineExceeded, Unavailable, ZmqTritonError, from_number
from zmqtriton_floor.settings.broker import OnDemand

_VERB = "demand"
#: Maximum number of waiting requests; further ones are refused at once.
MAX_HELD = 10_000
_LATE = Unavailable("timed out waiting for the model to load (the load continues)")


class _WaitingRequest(NamedTuple):
    row: wire.Request
    body: bytes
    error: NotServed
    until_ns: int


class WaitingForLoad(BrokerPart):
    def __init__(
        self,
        state: BrokerState,
        infer: Callable[[int, list[wire.Request], list[bytes], int], None],
        answers: Answers,
    ) -> None:
        """Set up; `infer` admits the requests of a peer, or refuses them."""
        super().__init__(state)
        self._infer = infer
        self._answers = answers
        #: Maximum time that a request waits; 0 if the server does not load models on demand.
        self._timeout_ns = 0
        self._numbers = itertools.count(1)
        #: The models that the supervisor was asked to load, by the number of the call.
        self._models_by_call: dict[int, str] = {}
        #: Waiting requests by peer and request id, in order of arrival.
        self.timed: dict[tuple[int, int], _WaitingRequest] = {}
        #: True while a request is submitted again, which is not held a second time.
        self._is_again = False

    def configure(self, on_demand: OnDemand) -> None:
        if on_demand.is_on:
            self._timeout_ns = int(on_demand.timeout_s * 1e9)

    def hold(
        self, serial: int, row: wire.Request, body: bytes, error: ZmqTritonError, now_ns: int
    ) -> bool:
        """Hold a request until its model is loaded; False if it cannot be held."""
        is_late = row.deadline_ns and row.deadline_ns <= now_ns
        if (
            not isinstance(error, NotServed)
            or not error.model
            or not self._timeout_ns
            or self._is_again
            or is_late
            or len(self.timed) >= MAX_HELD
        ):
            return False
        until_ns = min(now_ns + self._timeout_ns, row.deadline_ns or now_ns + self._timeout_ns)
        self.timed[serial, row.id] = _WaitingRequest(row, body, error, until_ns)
        if error.model not in self._models_by_call.values():
            number = next(self._numbers)
            self._models_by_call[number] = error.model
            document = json.dumps({"model": error.model})
            self._outbox.supervisor.append(wire.Call(number, _VERB, document))
        return True

    def take_result(self, answer: wire.CallResult, now_ns: int) -> None:
        """Process the supervisor's answer."""
        model = self._models_by_call.pop(answer.id, None)
        for (serial, own_id), held in list(self.timed.items()):
            if held.error.model != model:
                continue
            del self.timed[serial, own_id]
            if answer.code:
                error = from_number(answer.code, _error_text(held.row, answer.text))
                self._answers.reject(serial, own_id, error)
            elif json.loads(answer.result):
                self._is_again = True
                self._infer(serial, [held.row], [held.body], now_ns)
                self._is_again = False
            else:
                self._answers.reject(serial, own_id, held.error)

    def cancel(self, serial: int, own_id: int) -> None:
        """Drop a held request that was cancelled, if there is one."""
        if self.timed.pop((serial, own_id), None) is not None:
            self._answers.reject(serial, own_id, CANCELLED)

    def cancel_calls(self, serial: int, callers: Batch, error: ZmqTritonError) -> None:
        """Refuse the calls that a stub has made for these requests, whose own callers have left."""
        keys = {caller.key for caller in callers.requests}
        for (peer, own_id), held in list(self.timed.items()):
            if peer == serial and (held.row.caller_peer, held.row.caller_id) in keys:
                del self.timed[peer, own_id]
                self._answers.reject(peer, own_id, error)

    def forget_peer(self, serial: int) -> None:
        """Drop the held requests of a dead process."""
        for key in [key for key in self.timed if key[0] == serial]:
            del self.timed[key]

    def next_due_ns(self) -> int | None:
        return min((held.until_ns for held in self.timed.values()), default=None)

    def refuse_late(self, now_ns: int) -> None:
        """Refuse the requests that have waited for too long."""
        for (serial, own_id), held in list(self.timed.items()):
            if held.until_ns <= now_ns:
                del self.timed[serial, own_id]
                is_overdue = 0 < held.row.deadline_ns <= now_ns
                where = f"model '{held.error.model}' was being loaded (the load continues)"
                late = DeadlineExceeded(f"Deadline Exceeded: {where}") if is_overdue else _LATE
                error = from_number(late.number, _error_text(held.row, late.text))
                self._answers.reject(serial, own_id, error)


def _error_text(row: wire.Request, text: str) -> str:
    return f"Model {row.model} - Error when running inference: {text}" if row.model else text
