"""The inference RPC: bytes in, the gateway's one response as bytes out.

The message becomes an Ask, as a stream's does. Knows no transport; cancelling the RPC cancels the
request.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError

from zmqtriton_floor.wire import ResponseBody, make
from zmqtriton_frontends.entrance.ask import Ask, Content, Step
from zmqtriton_frontends.entrance.entrance import Entrance
from zmqtriton_frontends.entrance.reports import Reports
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.gateway.pending import Pending, Sink
from zmqtriton_frontends.grpc_api.call import (
    FREE_REQUEST_BYTES,
    Answer,
    NoRequestRoomError,
    Response,
    RpcCall,
    hold_answer,
    kept_bytes,
    source_of,
)
from zmqtriton_frontends.grpc_api.inference.convert import (
    EMPTY_FINAL,
    malformed,
    one_response,
    read_content,
)
from zmqtriton_frontends.grpc_api.inference.gradual_parsing import (
    LARGE_BYTES,
    MIN_BYTES,
    LargeMessage,
    ParsedRequest,
    before_raw,
    split_raw,
)
from zmqtriton_frontends.grpc_api.inference.response import encode_in_pieces
from zmqtriton_frontends.inference.admission import CheckedRequest, reported
from zmqtriton_frontends.inference.layouts import Layouts
from zmqtriton_frontends.inference.model_version import ModelVersion
from zmqtriton_frontends.inference.request_trace import now_ns
from zmqtriton_protos import message

_REQUEST = message("inference.ModelInferRequest")
_KEY_BYTES = 48


def parse_request(data: bytes | ParsedRequest) -> tuple[Any, Sequence[Any]]:
    """Return an inference.ModelInferRequest and its raw tensors.

    Raises InvalidArgument. Raises LargeMessage for a message that must first be parsed in steps,
    after which the caller tries again.
    """
    if isinstance(data, ParsedRequest):
        return data.request, data.raw
    parts = split_raw(data) if len(data) >= MIN_BYTES else None
    rest, raw = (data, None) if parts is None else parts
    if len(rest) >= LARGE_BYTES:
        raise LargeMessage(rest, [] if raw is None else raw)
    try:  # as parse() does, by a call less
        request = _REQUEST.FromString(rest)
    except DecodeError:
        raise malformed(_REQUEST) from None
    return request, request.raw_input_contents if raw is None else raw


def _has_content(model: ModelVersion) -> Content:
    raise AssertionError("the content is there")


class Messages:
    """Reads the messages of one RPC, whose client reads many responses or just one."""

    def __init__(self, *, takes_streams: bool = False) -> None:
        self._takes_streams = takes_streams
        self._method = "ModelStreamInfer" if takes_streams else "ModelInfer"
        self._layouts = Layouts()

    def ask(
        self, data: bytes | ParsedRequest, call: RpcCall, steps: tuple[Step, ...] = ()
    ) -> tuple[Ask, Any]:
        """Return the Ask of a message, and the message; None in place of one read by its layout.

        Raises what parse_request() raises.
        """
        # the size, and what begins with the model's name
        key = None if isinstance(data, ParsedRequest) else (len(data), bytes(data[:_KEY_BYTES]))
        layout = self._layouts.get(key)
        body = None if layout is None else layout.read(data)
        content = request = None
        read: Callable[[ModelVersion], Content]
        if layout is not None and body is not None:
            target, read = layout.target, _has_content
            content = make(Content, (body, *layout.content, layout))
        else:
            request, raw = parse_request(data)
            target = request.model_name, request.model_version
            read = partial(self._read, key, data, request, raw)
        header, spelled_headers, _, _ = call.facts
        source = partial(source_of, call, self._method)
        ask = (
            target,
            read,
            header,
            spelled_headers,
            call.grant,
            call.deadline_ns,
            now_ns(),
            steps,
            source,
            content,
        )
        return make(Ask, ask), request

    def _read(
        self, key: Any, data: Any, request: Any, raw: Sequence[Any], model: ModelVersion
    ) -> Content:
        """Read a message; learn its layout by the key, if it has one."""
        content = read_content(request, raw, self._takes_streams, model)
        is_plain = len(raw) == len(request.inputs) > 0 and not content.places
        if key is None or not is_plain or EMPTY_FINAL in request.parameters:
            return content
        if self._layouts.is_common(key, content.body) and (before := before_raw(data, raw)):
            target = request.model_name, request.model_version
            self._layouts.learn(key, len(data), before, content.body, content[1:5], target)
        return content


class ModelInfer:
    """ModelInfer."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        pattern = gateway.settings.grpc.header_forward_pattern
        self._entrance = Entrance(gateway, "GRPC_WAITREAD", "GRPC_SEND", pattern)
        self._reports = (Reports(gateway, "utf-8"),)
        self._messages = Messages()

    def begin(self, data: bytes, call: RpcCall, answer: Answer) -> Pending:
        """Begin; the answer may be given before this returns. Raises InvalidArgument."""
        facts = call.facts
        pending = Pending(self._gateway, UnarySink(answer, call, len(data)), facts.sequences)
        steps = self._reports if facts.has_wishes else ()
        try:
            ask, _ = self._messages.ask(data, call, steps)
            self._entrance.begin(ask, pending)
        except LargeMessage as large:

            def begin(parsed: ParsedRequest) -> None:
                ask, _ = self._messages.ask(parsed, call, steps)
                self._entrance.begin(ask, pending)

            pending.wait(large.read(call), begin)
        return pending


class UnarySink(Sink):
    """Gives the response to a call, as a message of its own."""

    __slots__ = ("_answer", "_call", "_size", "admits")

    sending = "GRPC_SEND"

    def __init__(self, answer: Answer, call: RpcCall, size: int) -> None:
        """Set up for a request message of this size."""
        self._answer = answer
        self._call = call
        self._size = size
        self.admits = size > FREE_REQUEST_BYTES

    def admit(self, checked: CheckedRequest, /) -> CheckedRequest:
        """Reserve room for the request until its call ends. Raises NoRequestRoomError."""
        kept = kept_bytes(checked.body, self._size)
        if kept > FREE_REQUEST_BYTES and not self._call.requests.take(kept):
            raise NoRequestRoomError
        return checked

    def respond(
        self, pending: Pending, response: ResponseBody, /
    ) -> Coroutine[Any, Any, None] | None:
        model = pending.model
        if pending.form:
            response = pending.classified(response)
        pieces, _ = encode_in_pieces(model.name, model.version, pending.request_id, response)
        if pending.reports:
            return self._respond_late(pending, pieces)
        self._answer.set_result(pieces)
        return None

    async def _respond_late(self, pending: Pending, pieces: Response) -> None:
        hold_answer(self._call, sum(map(len, pieces)))
        if pairs := await reported(pending.reports):
            self._call.add_trailers(pairs)
        self._answer.set_result(pieces)

    def refuse(self, error: Exception, /) -> None:
        self._answer.set_exception(error)

    def follow(self, pending: Pending, checked: CheckedRequest, /) -> Coroutine[Any, Any, None]:
        raise one_response()
