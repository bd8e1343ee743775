"""The inference RPC: bytes in, the gateway's one response as bytes out.

In the table of handlers.py. Knows no transport; cancelling the task that awaits it, or what it
began, cancels the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unsupported
from zmqtriton_floor.wire import ResponseBody
from zmqtriton_frontends.catalogue import Catalogue
from zmqtriton_frontends.classification import NO_CLASSES, classify
from zmqtriton_frontends.demand import NotLoaded
from zmqtriton_frontends.forwarding import Forwarding
from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.grpc_api.call import Call
from zmqtriton_frontends.grpc_api.convert import parse, read_body, read_options, read_wishes
from zmqtriton_frontends.grpc_api.raw import MIN_BYTES, split_raw
from zmqtriton_frontends.grpc_api.response import encode_response
from zmqtriton_frontends.kserve import CheckedRequest, prepare
from zmqtriton_frontends.payload import has_references, is_large
from zmqtriton_frontends.regions import NO_PLACES
from zmqtriton_frontends.trace import Trace, ending, now_ns
from zmqtriton_frontends.traces import traceparent
from zmqtriton_protos import message

_REQUEST = message("inference.ModelInferRequest")


class Inference:
    """ModelInfer."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._forwarding = Forwarding(gateway.settings["grpc_header_forward_pattern"])

    async def infer(self, data: bytes, call: Call) -> bytes:
        try:
            checked = self._read(data, call)
        except NotLoaded as missing:
            await missing.load(call.deadline_ns)
            checked = self._read(data, call)
        with ending(checked.trace, "GRPC_SEND"):
            response = await self._gateway.infer(checked)
            _mark(checked)
            return encoded(checked, response)

    def begin(self, data: bytes, call: Call, answer: Answer) -> Asked | Late:
        """The same without a task; the answer may be given before this returns. Raises what is
        wrong with the request."""
        try:
            checked = self._read(data, call)
        except NotLoaded:
            return Late(self.infer(data, call), answer)
        asked = Asked(self._gateway, checked, answer, encoded)
        asked.start()
        return asked

    def _read(self, data: bytes, call: Call) -> CheckedRequest:
        # A function of its own, so that the message is freed before the response is awaited.
        traces = self._gateway.traces
        begun_ns = now_ns() if traces.is_on else 0
        request, raw = parse_request(data)
        catalogue = self._gateway.catalogue
        # The model first, as in Triton: what is wrong besides matters only where it exists.
        found = catalogue.find(request.model_name, request.model_version)
        if found.signature.is_decoupled:
            raise Unsupported(
                "ModelInfer RPC doesn't support models with decoupled transaction policy"
            )
        forwarded: dict[str, Any] = {}
        if self._forwarding:
            self._forwarding.add(forwarded, call.metadata)
        checked = check_request(catalogue, request, raw, forwarded, call.deadline_ns)
        if traces.is_on:
            given, begun = traceparent(call.metadata), ("GRPC_WAITREAD", begun_ns)
            return traces.follow(checked, given, begun)
        return checked


class Answer(Protocol):
    """Gets the response, or what it became instead; one call, which must not raise."""

    def set_result(self, response: bytes, /) -> None: ...

    def set_exception(self, error: Exception, /) -> None: ...


#: What makes a message of a response.
Encode = Callable[[CheckedRequest, ResponseBody], bytes]


class _Ending:
    """An answer that is the end of a trace."""

    def __init__(self, answer: Answer, trace: Trace) -> None:
        self._answer = answer
        self._trace = trace

    def set_result(self, message: bytes, /) -> None:
        self._trace.end("GRPC_SEND")
        self._answer.set_result(message)

    def set_exception(self, error: Exception, /) -> None:
        self._trace.fail(str(error))
        self._trace.end("GRPC_SEND")
        self._answer.set_exception(error)


class Asked:
    """A request under way, to which the gateway gives its reply."""

    __slots__ = ("_answer", "_checked", "_encode", "_gateway", "_id", "_is_wanted", "_task")

    def __init__(
        self, gateway: Gateway, checked: CheckedRequest, answer: Answer, encode: Encode
    ) -> None:
        self._encode = encode
        self._gateway = gateway
        self._checked = checked
        trace = checked.trace
        self._answer = answer if trace is None else _Ending(answer, trace)
        self._id = 0
        self._is_wanted = True
        #: What sends a large request, and opens its response.
        self._task: asyncio.Task[ResponseBody] | None = None

    def start(self) -> None:
        if self._checked.places or is_large(self._checked.body):
            self._await(self._gateway.infer(self._checked))
        else:
            self._id = self._gateway.begin(self._checked, self)

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        self._is_wanted = False
        if self._checked.trace is not None:
            self._checked.trace.fail("request was cancelled")
            self._checked.trace.end("GRPC_SEND")
        if self._id:
            # A response that is being opened is let go when it is open.
            self._gateway.cancel(self._id)
        elif self._task is not None:
            self._task.cancel()
            self._task = None

    # -------------------------------------------------- called by the gateway

    def done(self) -> bool:
        return False  # the gateway forgets whom it cancels

    def set_result(self, body: bytes, /) -> None:
        try:
            response = wire.decode_response(body)
            if has_references(response):
                self._await(self._gateway.payload.open(response))
            else:
                self._give(response)
        except Exception as error:  # noqa: BLE001 - an edge: the gateway reads on in any case
            self._answer.set_exception(error)

    def set_exception(self, error: Exception, /) -> None:
        self._answer.set_exception(error)

    def _give(self, response: ResponseBody) -> None:
        _mark(self._checked)
        self._answer.set_result(self._encode(self._checked, response))

    def _await(self, response: Coroutine[Any, Any, ResponseBody]) -> None:
        self._task = asyncio.get_running_loop().create_task(response)
        self._task.add_done_callback(self._awaited)

    def _awaited(self, task: asyncio.Task[ResponseBody]) -> None:
        self._task = None
        if not self._is_wanted or task.cancelled():
            return
        try:
            self._give(task.result())
        except Exception as error:  # noqa: BLE001 - an edge, as above
            self._answer.set_exception(error)


def _mark(checked: CheckedRequest) -> None:
    if checked.trace is not None:
        checked.trace.mark("INFER_RESPONSE_COMPLETE")


class Late:
    """A request that waits for its model, with a task after all."""

    def __init__(self, response: Coroutine[Any, Any, bytes], answer: Answer) -> None:
        self._answer = answer
        self._task = asyncio.get_running_loop().create_task(response)
        self._task.add_done_callback(self._awaited)

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        self._task.cancel()

    def _awaited(self, task: asyncio.Task[bytes]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, Exception):
            self._answer.set_exception(error)
        else:
            self._answer.set_result(task.result())


def encoded(checked: CheckedRequest, response: ResponseBody) -> bytes:
    """The response as a message."""
    model = checked.model
    if checked.classes:
        response = classify(model, response, checked.classes)
    return encode_response(model.name, model.version, checked.body.request_id, response)


def parse_request(data: bytes) -> tuple[Any, Sequence[Any]]:
    """An inference.ModelInferRequest and its raw tensors; InvalidArgument where it is none."""
    parts = split_raw(data) if len(data) >= MIN_BYTES else None
    if parts is None:
        request = parse(_REQUEST, data)
        return request, request.raw_input_contents
    rest, raw = parts
    return parse(_REQUEST, rest), raw


def check_request(
    catalogue: Catalogue,
    request: Any,
    raw: Sequence[Any],
    forwarded: Mapping[str, str],
    deadline_ns: int,
) -> CheckedRequest:
    """Raises what is wrong with a request to a model that exists; `forwarded` is what of the call's
    metadata becomes parameters."""
    parameters, options = read_options(request, deadline_ns)
    parameters.update(forwarded)
    body = read_body(request, raw, parameters)
    places, classes = read_wishes(request) if request.outputs else (NO_PLACES, NO_CLASSES)
    model, version = request.model_name, request.model_version
    checked = prepare(catalogue, model, version, body, options, places)
    return checked._replace(classes=classes) if classes else checked
