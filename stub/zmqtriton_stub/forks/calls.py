"""Calls of forks to the instance that are no BLS: metrics, models, their senders.

Whatever may take long runs in a thread of its own, so that one fork does not keep others waiting.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any, Callable

from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError, NotFound, Unavailable, ZmqTritonError
from zmqtriton_stub.api.errors import (
    ErrorCode,
    TritonError,
    TritonModelException,
    clip,
)
from zmqtriton_stub.api.inference import InferenceResponse
from zmqtriton_stub.api.tensor import received

if TYPE_CHECKING:
    from zmqtriton_floor.zmtp import Connection
    from zmqtriton_stub.instance import Instance

#: What the supervisor answers.
_CONTROL = frozenset({"load", "unload", "ready"})
_NO_CONTROL = (
    "models are controlled from initialize() and execute() of a model that is being served, not "
    "from auto_complete_config() or finalize()"
)
_CLOSED = "Unable to send response. Response sender has been closed."


class Calls:
    """Carries out the calls of all forks."""

    def __init__(
        self, instance: Instance, answer: Callable[[Connection, wire.CallResult], None]
    ) -> None:
        """Set up; `answer` is called by any thread."""
        self._instance = instance
        self._answer = answer

    def take(
        self, connection: Connection, call: wire.Call, bodies: list[bytes], made: set[int]
    ) -> None:
        """Carry out a call; `made` are the metrics that this fork has made."""
        arguments = json.loads(call.arguments)
        measures = self._instance.measures
        if call.verb == "change":
            number, verb, value = arguments
            measured = measures.find(number)
            if measured is not None:  # its last holder has let it go
                measures.change(measured, verb, value)
        elif call.verb == "drop":
            made.discard(arguments)
            measures.drop(arguments)
        else:
            threading.Thread(
                target=self._run,
                args=(connection, call, arguments, bodies, made),
                name="fork's call",
                daemon=True,
            ).start()

    def _run(
        self,
        connection: Connection,
        call: wire.Call,
        arguments: Any,
        bodies: list[bytes],
        made: set[int],
    ) -> None:
        try:
            result = self._result(call, arguments, bodies)
            if call.verb in ("family", "metric"):
                made.add(result)
            answer = wire.CallResult(call.id, 0, "", json.dumps(result))
        except ZmqTritonError as error:
            answer = wire.CallResult(call.id, error.number, error.text, "")
        except (TritonModelException, ValueError, TypeError) as error:
            answer = wire.CallResult(call.id, InternalError.number, clip(str(error)), "")
        self._answer(connection, answer)

    def _result(self, call: wire.Call, arguments: Any, bodies: list[bytes]) -> Any:
        if call.verb in _CONTROL:
            control = self._instance.call
            if control is None:
                raise Unavailable(_NO_CONTROL)
            return control(call.verb, call.arguments)
        if call.verb == "family":
            return self._instance.measures.add_family(*arguments)
        if call.verb == "metric":
            return self._instance.measures.add(*arguments).number
        if call.verb == "value":
            return self._value(arguments)
        if call.verb == "is_cancelled":
            pending = self._pending(arguments)
            return pending is not None and pending.is_cancelled_now()
        if call.verb == "send":
            return self._send(arguments, bodies)
        raise InternalError(f"a fork asks for {call.verb}")

    def _value(self, number: int) -> float:
        measured = self._instance.measures.find(number)
        if measured is None:
            raise NotFound("the metric is gone")
        return self._instance.measures.value(measured)

    def _pending(self, route: Any) -> Any:
        peer, own_id = route
        return self._instance.find_request((peer, own_id))

    def _send(self, arguments: Any, bodies: list[bytes]) -> None:
        peer, own_id, flags, failure = arguments
        pending = self._pending((peer, own_id))
        if pending is None:
            raise TritonModelException(_CLOSED)
        response = None
        if failure is not None:
            code, text = failure
            response = InferenceResponse(error=TritonError(text, ErrorCode(code)))
        elif bodies:
            parameters, outputs = wire.decode_response(bodies[0])
            response = InferenceResponse([received(tensor) for tensor in outputs])
            response._parameters = parameters
        pending.send(response, flags)
