"""The inference RPC: bytes in, the gateway's one response as bytes out.

Knows no transport; cancelling what was begun cancels the request.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from zmqtriton_floor.errors import Unsupported
from zmqtriton_floor.wire import ResponseBody
from zmqtriton_frontends.access.bearer_tokens import check_model
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.gateway.pending_request import PendingRequest
from zmqtriton_frontends.grpc_api.call import (
    FREE_REQUEST_BYTES,
    Call,
    NoRequestRoomError,
    hold_answer,
    kept_bytes,
)
from zmqtriton_frontends.grpc_api.inference.gradual_parsing import (
    ParsedRequest,
    TakesLong,
)
from zmqtriton_frontends.grpc_api.inference.infer_request import (
    check_request,
    find_in_metadata,
    parse_request,
)
from zmqtriton_frontends.grpc_api.inference.response import encode_in_pieces
from zmqtriton_frontends.grpc_api.inference.stage_time_metadata import (
    StageTimeMetadata,
    StatisticsSource,
)
from zmqtriton_frontends.grpc_api.unary import Answer
from zmqtriton_frontends.inference.admission import CheckedRequest
from zmqtriton_frontends.inference.classification import classify
from zmqtriton_frontends.inference.header_forwarding import Forwarding
from zmqtriton_frontends.inference.load_on_demand import NotLoaded
from zmqtriton_frontends.inference.request_trace import now_ns
from zmqtriton_frontends.inference.trace_sampling import parent_in_metadata

_T = TypeVar("_T")


class Inference:
    """ModelInfer."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        pattern = gateway.settings.grpc.header_forward_pattern
        hides_tokens = bool(gateway.settings.access.tokens)
        self._forwarding = Forwarding(pattern, hides_tokens=hides_tokens) if pattern else None
        self._statistics = StatisticsSource(gateway)

    def begin(self, data: bytes, call: Call, answer: Answer) -> PendingGrpcInference:
        """Begin; the answer may be given before this returns. Raises the request's errors."""
        metadata = StageTimeMetadata(self._statistics, call) if call.has_wishes else None
        pending = PendingGrpcInference(self._gateway, answer, metadata)
        try:
            checked = self._read(data, call)
        except NotLoaded as missing:
            loaded = partial(self._begin_loaded, pending, data, call)
            pending.wait(missing.load(call.deadline_ns), loaded)
        except TakesLong as long:
            pending.wait(long.read(call), partial(self._begin_parsed, pending, call))
        else:
            pending.begin(checked, len(data), call)
        return pending

    def _begin_parsed(
        self, pending: PendingGrpcInference, call: Call, parsed: ParsedRequest
    ) -> None:
        try:
            checked = self._read(parsed, call)
        except NotLoaded as missing:
            loaded = partial(self._begin_loaded, pending, parsed, call)
            pending.wait(missing.load(call.deadline_ns), loaded)
        else:
            pending.begin(checked, len(parsed), call)

    def _begin_loaded(
        self, pending: PendingGrpcInference, data: bytes | ParsedRequest, call: Call, _: None
    ) -> None:
        pending.begin(self._read(data, call), len(data), call)

    def _read(self, data: bytes | ParsedRequest, call: Call) -> CheckedRequest:
        # A function of its own, so that the message is freed before the response is awaited.
        traces = self._gateway.traces
        begun_ns = now_ns() if traces.is_on else 0
        request, raw = parse_request(data)
        catalogue = self._gateway.catalogue
        # the model first, as in Triton: other errors matter only if it exists
        if call.grant is not None:
            check_model(call.grant, request.model_name)
        model = catalogue.find(request.model_name, request.model_version)
        if model.signature.is_decoupled:
            raise Unsupported(
                "ModelInfer RPC doesn't support models with decoupled transaction policy. "
                "Use ModelStreamInfer"
            )
        forwarded: dict[str, Any] = {}
        if self._forwarding is not None:
            self._forwarding.add(forwarded, call.metadata)
        checked = check_request(
            catalogue,
            model,
            request,
            raw,
            forwarded,
            call.deadline_ns,
            header=lambda name: find_in_metadata(call.metadata, name),
        )
        if call.grant is not None:
            checked = self._gateway.token_marks.mark(checked, call.grant)
        if traces.is_on:
            parent, begun = parent_in_metadata(call.metadata), ("GRPC_WAITREAD", begun_ns)
            return traces.follow(checked, parent, begun)
        return checked


def _hold(checked: CheckedRequest, size: int, call: Call) -> None:
    """Take room for a request under way, until its call ends. Raises NoRequestRoomError."""
    kept = kept_bytes(checked.body, size)
    if kept > FREE_REQUEST_BYTES and not call.requests.take(kept):
        raise NoRequestRoomError


class PendingGrpcInference(PendingRequest):
    """A request whose answer is a message of its own."""

    __slots__ = ("_answer", "_checked", "_metadata")

    SENDING = "GRPC_SEND"

    def __init__(
        self, gateway: Gateway, answer: Answer, metadata: StageTimeMetadata | None
    ) -> None:
        """Set up; `metadata` is what its client wants to hear besides."""
        super().__init__(gateway)
        self._answer = answer
        self._metadata = metadata
        self._checked: CheckedRequest

    def wait(self, awaited: Coroutine[Any, Any, _T], then: Callable[[_T], None]) -> None:
        """Wait for something before it can begin."""
        self._await(awaited, then)

    def begin(self, checked: CheckedRequest, size: int, call: Call) -> None:
        """Begin a request whose message has this size; it may be answered before this returns."""
        if size > FREE_REQUEST_BYTES:
            _hold(checked, size, call)
        if self._metadata is not None:
            checked = self._metadata.expect(checked)
        self._checked = checked
        if checked.options.correlation:
            call.sequences.note(checked)
        self._send(checked)

    def _respond(self, response: ResponseBody) -> None:
        checked, answer, metadata = self._checked, self._answer, self._metadata
        model = checked.model
        if checked.classes:
            response = classify(model, response, checked.classes)
        pieces = encode_in_pieces(model.name, model.version, checked.body.request_id, response)
        if self._trace is not None:
            self._end_trace()
        if metadata is None:
            answer.set_result(pieces)
        else:
            hold_answer(metadata.call, sum(map(len, pieces)))
            adding = metadata.add(model, checked.stages)
            self._await(adding, lambda _: answer.set_result(pieces))

    def _refuse(self, error: Exception) -> None:
        self._answer.set_exception(error)
