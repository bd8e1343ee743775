"""One request and its responses, on the loop of the guest."""

from __future__ import annotations

import asyncio
import operator
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from typing import Any

from zmqtriton.embedded.requests import InferenceRequest, InferenceResponse
from zmqtriton_floor.arrays import to_arrays, to_tensors
from zmqtriton_floor.errors import Cancelled, DeadlineExceeded, InvalidArgument, ZmqTritonError
from zmqtriton_floor.wire import SEQUENCE_END, SEQUENCE_START, RequestBody, ResponseBody
from zmqtriton_frontends.entrance.ask import Ask, Content
from zmqtriton_frontends.entrance.entrance import Entrance
from zmqtriton_frontends.gateway.pending import Pending, Sink
from zmqtriton_frontends.inference.admission import (
    CheckedRequest,
    SchedulingOptions,
    check_parameter_name,
)
from zmqtriton_frontends.inference.model_version import ModelVersion
from zmqtriton_frontends.inference.request_trace import now_ns

# ------------------------------------ reading a request of this process's own code
#
# Kinds and limits of its parts. Nobody else would: what comes over a port is read where it comes
# in, and the broker ends the connection of a frontend that sends it anything but a request. Raises
# InvalidArgument.

_MAX_SEQUENCE_ID = 128


def read_body(request: InferenceRequest, config: Mapping[str, Any]) -> RequestBody:
    """Return the body of a request to the model with this configuration."""
    for name in request.inputs:
        _text(name, "the name of an input")
    return RequestBody(
        _text(request.request_id, "request_id"),
        _parameters(request.parameters),
        _outputs(request.outputs),
        to_tensors(request.inputs, config),
    )


def read_options(request: InferenceRequest) -> SchedulingOptions:
    flags = SEQUENCE_START if request.sequence_start else 0
    flags |= SEQUENCE_END if request.sequence_end else 0
    correlation = request.correlation_id
    if not isinstance(correlation, str):
        correlation = _integer(correlation, "correlation_id")
    elif len(correlation) > _MAX_SEQUENCE_ID:
        raise InvalidArgument(
            f"string correlation ID cannot be longer than {_MAX_SEQUENCE_ID} characters"
        )
    priority, timeout = _integer(request.priority, "priority"), _integer(request.timeout, "timeout")
    return SchedulingOptions(flags, priority, timeout, 0, correlation)


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"{what} must be a string, got {type(value).__name__}")
    return value


def _integer(value: Any, what: str) -> int:
    try:
        return int(operator.index(value))
    except TypeError:
        raise InvalidArgument(f"{what} must be an integer, got {type(value).__name__}") from None


def _parameters(parameters: Any) -> dict[str, Any]:
    if not isinstance(parameters, Mapping):
        raise InvalidArgument(f"parameters must be a dict, got {type(parameters).__name__}")
    for name, value in parameters.items():
        check_parameter_name(_text(name, "the name of a parameter"))
        if not isinstance(value, (bool, int, float, str)):
            raise InvalidArgument(
                f"parameter '{name}' must be an integer, a float, a boolean or a string, got "
                f"{type(value).__name__}"
            )
    return dict(parameters)


def _outputs(outputs: Any) -> list[str]:
    if isinstance(outputs, str) or not isinstance(outputs, Sequence):
        raise InvalidArgument(f"outputs must be a sequence of names, got {type(outputs).__name__}")
    names: dict[str, None] = {}
    for name in outputs:
        if _text(name, "the name of an output") in names:
            raise InvalidArgument(f"output '{name}' already exists in request")
        names[name] = None
    return list(names)


#: The next response; None if there is none any more.
Coming = Future[InferenceResponse | None]

_CANCELLED = "request was cancelled"


class GuestSink(Sink):
    """Gives each response to the future that waits for it."""

    __slots__ = (
        "_coming",
        "_deadline_ns",
        "_demand",
        "_entrance",
        "_kept",
        "_name",
        "_open",
        "_pending",
        "_request",
    )

    sending = "GUEST_SEND"
    admits = True

    def __init__(
        self,
        entrance: Entrance,
        name: str,
        version: str,
        request: InferenceRequest,
        kept: list[Any],
        among: set[GuestSink],
    ) -> None:
        """Set up; `kept` is held until the request is sent.

        `among` has the sinks of all running requests, which end with the connection.
        """
        self._pending = Pending(entrance.gateway, self)
        self._entrance = entrance
        self._name = name, version
        self._request = request
        self._kept = kept
        self._open = among
        self._coming: Coming | None = None
        #: Set while the next response of a stream is wanted.
        self._demand = asyncio.Event()
        self._deadline_ns = 0
        if request.deadline_s is not None:
            self._deadline_ns = time.monotonic_ns() + int(request.deadline_s * 1e9)

    def begin(self, coming: Coming) -> None:
        """Send the request; the future gets the first response."""
        self._open.add(self)
        self._coming = coming
        ask = Ask(self._name, self._read, deadline_ns=self._deadline_ns, begun_ns=now_ns())
        self._entrance.begin(ask, self._pending)

    def _read(self, model: ModelVersion) -> Content:
        request = self._request
        return Content(read_body(request, model.config), read_options(request))

    def admit(self, checked: CheckedRequest, /) -> CheckedRequest:
        return checked._replace(on_asked=self._drop_inputs)

    def _drop_inputs(self) -> None:
        """Drop the inputs: they have been sent, or never will be."""
        self._request = self._request._replace(inputs={})
        self._kept = []

    def proceed(self, coming: Coming) -> None:
        """Let the stream send its next response, which the future gets."""
        self._coming = coming
        if self in self._open:
            self._demand.set()
        else:
            self.refuse(Cancelled(_CANCELLED))

    def close(self) -> None:
        """Cancel the request, if it is not answered; a thread that waits for it gets Cancelled."""
        self._pending.cancel()
        self.refuse(Cancelled(_CANCELLED))

    def fail(self, error: Exception) -> None:
        """Refuse the request with this error: the connection is gone."""
        self.refuse(error)
        self.close()

    # ------------------------------------------------------------- responses

    def respond(self, pending: Pending, response: ResponseBody, /) -> None:
        self._settle(self._response(response, None, is_final=True))

    async def follow(self, pending: Pending, checked: CheckedRequest, /) -> None:
        items = self._entrance.responses(checked)
        del checked  # its tensors may be large, and this may last
        async with aclosing(items):
            async for item in items:
                if type(item.error) is DeadlineExceeded:
                    raise item.error
                self._demand.clear()
                self._settle(self._response(item.body, item.error, is_final=item.is_final))
                if item.is_final:
                    return
                del item  # its memory may be the model's
                await self._demand.wait()
        self._settle(None)

    def refuse(self, error: Exception, /) -> None:
        self._open.discard(self)
        self._drop_inputs()
        coming, self._coming = self._coming, None
        if coming is not None:
            coming.set_exception(error)

    def _settle(self, response: InferenceResponse | None) -> None:
        if response is None or response.final:
            self._open.discard(self)
        coming, self._coming = self._coming, None
        if coming is not None:
            coming.set_result(response)

    def _response(
        self, body: ResponseBody | None, error: ZmqTritonError | None, *, is_final: bool
    ) -> InferenceResponse:
        return InferenceResponse(
            self._pending.model.name,
            self._pending.model.version,
            self._request.request_id,
            {} if body is None else to_arrays(body.outputs),
            {} if body is None else body.parameters,
            error,
            is_final,
        )
