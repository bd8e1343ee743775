"""The inference RPC: bytes in, the gateway's one response as bytes out.

Knows no transport; cancelling the task that awaits it, or what it began, cancels the request.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from zmqtriton_floor.errors import Unsupported
from zmqtriton_floor.wire import ResponseBody
from zmqtriton_frontends.access.bearer_tokens import check_model
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.gateway.pending_request import PendingRequest
from zmqtriton_frontends.grpc_api.call import (
    FREE_BYTES,
    FREE_REQUEST_BYTES,
    Call,
    NoRequestRoomError,
    NoRoomError,
    kept_bytes,
)
from zmqtriton_frontends.grpc_api.inference.convert import (
    NO_OPTIONS,
    parse,
    read_body,
    read_options,
    read_wishes,
)
from zmqtriton_frontends.grpc_api.inference.gradual_parsing import (
    LARGE_BYTES,
    ParsedRequest,
    TakesLong,
)
from zmqtriton_frontends.grpc_api.inference.raw_tensors import MIN_BYTES, split_raw
from zmqtriton_frontends.grpc_api.inference.report import Report
from zmqtriton_frontends.grpc_api.inference.response import encode_in_pieces
from zmqtriton_frontends.inference.admission import CheckedRequest, Options, prepare
from zmqtriton_frontends.inference.catalogue import Catalogue, HeaderLookup, ModelVersion
from zmqtriton_frontends.inference.classification import NO_CLASSES, classify
from zmqtriton_frontends.inference.client_regions import NO_PLACES
from zmqtriton_frontends.inference.header_forwarding import Forwarding
from zmqtriton_frontends.inference.load_on_demand import NotLoaded, attempt
from zmqtriton_frontends.inference.request_trace import ending, now_ns
from zmqtriton_frontends.inference.trace_sampling import parent_in_metadata
from zmqtriton_protos import message

_REQUEST = message("inference.ModelInferRequest")


class Inference:
    """ModelInfer."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        pattern = gateway.settings.grpc.header_forward_pattern
        hides_tokens = bool(gateway.settings.access.tokens)
        self._forwarding = Forwarding(pattern, hides_tokens=hides_tokens) if pattern else None
        self._report = Report(gateway)

    async def infer(self, data: bytes, call: Call) -> bytes:
        begun_ns = now_ns()
        try:
            checked = await attempt(partial(self._read, data, call), call.deadline_ns)
        except TakesLong as long:
            parsed = await long.read(call)
            checked = await attempt(partial(self._read, parsed, call), call.deadline_ns)
        if len(data) > FREE_REQUEST_BYTES:
            _hold(checked, len(data), call)
        checked = self._report.expect(call, checked, begun_ns)
        with ending(checked.trace, "GRPC_SEND"):
            response = await self._gateway.infer(checked)
            if checked.trace is not None:
                checked.trace.mark("INFER_RESPONSE_COMPLETE")
            answer = encoded(checked, response, call)
        await self._report.add(call, checked)
        return answer

    def begin(self, data: bytes, call: Call, answer: Answer) -> PendingGrpcInference:
        """Answer without a task, perhaps before this returns. Raises the request's errors."""
        asked = PendingGrpcInference(self._gateway, answer)
        try:
            checked = self._read(data, call)
        except NotLoaded as missing:
            asked.begin_late(missing, call.deadline_ns, partial(self._read, data, call))
        except TakesLong as long:
            asked.begin_parsed(long.read(call), partial(self._begin_parsed, asked, call))
        else:
            if len(data) > FREE_REQUEST_BYTES:
                _hold(checked, len(data), call)
            asked.begin(checked)
        return asked

    def _begin_parsed(self, asked: PendingGrpcInference, call: Call, parsed: ParsedRequest) -> None:
        try:
            checked = self._read(parsed, call)
        except NotLoaded as missing:
            asked.begin_late(missing, call.deadline_ns, partial(self._read, parsed, call))
        else:
            _hold(checked, len(parsed), call)
            asked.begin(checked)

    def _read(self, data: bytes | ParsedRequest, call: Call) -> CheckedRequest:
        # A function of its own, so that the message is freed before the response is awaited.
        traces = self._gateway.traces
        begun_ns = now_ns() if traces.is_on else 0
        request, raw = parse_request(data)
        catalogue = self._gateway.catalogue
        # the model first, as in Triton: other errors matter only if it exists
        if call.grant is not None:
            check_model(call.grant, request.model_name)
        found = catalogue.find(request.model_name, request.model_version)
        if found.signature.is_decoupled:
            raise Unsupported(
                "ModelInfer RPC doesn't support models with decoupled transaction policy. "
                "Use ModelStreamInfer"
            )
        forwarded: dict[str, Any] = {}
        if self._forwarding is not None:
            self._forwarding.add(forwarded, call.metadata)
        checked = check_request(
            catalogue,
            found,
            request,
            raw,
            forwarded,
            call.deadline_ns,
            header=lambda name: find_in_metadata(call.metadata, name),
        )
        if traces.is_on:
            parent, begun = parent_in_metadata(call.metadata), ("GRPC_WAITREAD", begun_ns)
            return traces.follow(checked, parent, begun)
        return checked


def _hold(checked: CheckedRequest, size: int, call: Call) -> None:
    """Take room for a request under way, until its call ends. Raises NoRequestRoomError."""
    kept = kept_bytes(checked.body, size)
    if kept > FREE_REQUEST_BYTES and not call.requests.take(kept):
        raise NoRequestRoomError


class Answer(Protocol):
    """Gets the response or the error, in one call that must not raise."""

    def set_result(self, response: list[bytes | memoryview], /) -> None:
        """Take the message in pieces."""

    def set_exception(self, error: Exception, /) -> None: ...


#: Raises NotLoaded while the request's model is not there.
Read = Callable[[], CheckedRequest]


class PendingGrpcInference(PendingRequest):
    """A request whose answer is a message of its own."""

    __slots__ = ("_answer", "_checked")

    SENDING = "GRPC_SEND"

    def __init__(self, gateway: Gateway, answer: Answer) -> None:
        super().__init__(gateway)
        self._answer = answer
        self._checked: CheckedRequest

    def begin(self, checked: CheckedRequest) -> None:
        """Begin; the answer may be given before this returns."""
        self._checked = checked
        self._send(checked)

    def begin_late(self, missing: NotLoaded, deadline_ns: int, read: Read) -> None:
        """Begin when the model is loaded."""
        self._await(missing.load(deadline_ns), lambda _: self.begin(read()))

    def begin_parsed(
        self,
        reading: Coroutine[Any, Any, ParsedRequest],
        then: Callable[[ParsedRequest], None],
    ) -> None:
        """Begin when the request is read."""
        self._await(reading, then)

    def _respond(self, response: ResponseBody) -> None:
        pieces = encoded_in_pieces(self._checked, response)
        if self._trace is not None:
            self._end_trace()
        self._answer.set_result(pieces)

    def _refuse(self, error: Exception) -> None:
        self._answer.set_exception(error)


def encoded(checked: CheckedRequest, response: ResponseBody, call: Call) -> bytes:
    """Return the response as a message. Raises NoRoomError."""
    pieces = encoded_in_pieces(checked, response)
    size = sum(map(len, pieces))
    if size > FREE_BYTES and not call.answers.take(size):
        raise NoRoomError
    return b"".join(pieces)


def encoded_in_pieces(checked: CheckedRequest, response: ResponseBody) -> list[bytes | memoryview]:
    model = checked.model
    if checked.classes:
        response = classify(model, response, checked.classes)
    return encode_in_pieces(model.name, model.version, checked.body.request_id, response)


def find_in_metadata(metadata: Iterable[tuple[str, str | bytes]], name: bytes) -> str | None:
    """Return the value of a client's header; None if there is no such text."""
    key = name.decode()
    return next((v for k, v in metadata if k == key and isinstance(v, str)), None)


def parse_request(data: bytes | ParsedRequest) -> tuple[Any, Sequence[Any]]:
    """Return an inference.ModelInferRequest and its raw tensors.

    Raises InvalidArgument, and TakesLong for a request that is to be given again when it is read.
    """
    if isinstance(data, ParsedRequest):
        return data.request, data.raw
    parts = split_raw(data) if len(data) >= MIN_BYTES else None
    if parts is None:
        if len(data) >= LARGE_BYTES:
            raise TakesLong(data, [])
        request = parse(_REQUEST, data)
        return request, request.raw_input_contents
    rest, raw = parts
    if len(rest) >= LARGE_BYTES:
        raise TakesLong(rest, raw)
    return parse(_REQUEST, rest), raw


def check_request(
    catalogue: Catalogue,
    model: ModelVersion,
    request: Any,
    raw: Sequence[Any],
    forwarded: Mapping[str, str],
    deadline_ns: int,
    *,
    header: HeaderLookup,
) -> CheckedRequest:
    """Admit a request to a model that was found; `forwarded` are parameters from the metadata."""
    parameters: dict[str, Any] = {}
    options = Options(deadline_ns=deadline_ns) if deadline_ns else NO_OPTIONS
    if request.parameters:
        parameters, options = read_options(request, deadline_ns)
    parameters.update(forwarded)
    body = read_body(request, raw, parameters)
    places, classes = read_wishes(request) if request.outputs else (NO_PLACES, NO_CLASSES)
    checked = prepare(catalogue, model, body, options, places, header)
    return checked._replace(classes=classes) if classes else checked
