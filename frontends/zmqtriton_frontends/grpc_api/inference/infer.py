"""The inference RPC: bytes in, the gateway's one response as bytes out.

The message becomes an Ask, as a stream's does. Knows no transport; cancelling the RPC cancels the
request.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError

from zmqtriton_floor.wire import ResponseBody
from zmqtriton_frontends.entrance.ask import Ask, Step
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
from zmqtriton_frontends.grpc_api.inference.convert import malformed, read_content
from zmqtriton_frontends.grpc_api.inference.gradual_parsing import (
    LARGE_BYTES,
    MIN_BYTES,
    LargeMessage,
    ParsedRequest,
    split_raw,
)
from zmqtriton_frontends.grpc_api.inference.response import encode_in_pieces
from zmqtriton_frontends.inference.admission import CheckedRequest, reported
from zmqtriton_frontends.inference.classification import classify
from zmqtriton_frontends.inference.request_trace import now_ns
from zmqtriton_protos import message

_REQUEST = message("inference.ModelInferRequest")


def header_of(call: RpcCall, name: bytes) -> str | None:
    """Return the value of a client's metadata; values of one name are joined by commas.

    None if the metadata have no text of this name.
    """
    key = name.decode()
    values = [value for k, value in call.metadata if k == key and isinstance(value, str)]
    return ",".join(values) if values else None


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


def ask_of(
    request: Any,
    raw: Sequence[Any],
    call: RpcCall,
    steps: tuple[Step, ...] = (),
    *,
    takes_streams: bool = False,
) -> Ask:
    """Return the Ask of a message, whose client reads many responses or just one."""
    return Ask(
        target=(request.model_name, request.model_version),
        read=partial(read_content, request, raw, takes_streams),
        header=partial(header_of, call),
        spelled_headers=lambda: call.metadata,
        grant=call.grant,
        deadline_ns=call.deadline_ns,
        begun_ns=now_ns(),
        steps=steps,
        source=partial(source_of, call, "ModelStreamInfer" if takes_streams else "ModelInfer"),
    )


class ModelInfer:
    """ModelInfer."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        pattern = gateway.settings.grpc.header_forward_pattern
        self._entrance = Entrance(gateway, "GRPC_WAITREAD", "GRPC_SEND", pattern)
        self._reports = (Reports(gateway, "utf-8"),)

    def begin(self, data: bytes, call: RpcCall, answer: Answer) -> Pending:
        """Begin; the response may be sent before this returns. Raises InvalidArgument."""
        pending = Pending(self._gateway, UnarySink(answer, call, len(data)), call.sequences)
        steps = self._reports if call.has_wishes else ()
        try:
            request, raw = parse_request(data)
            self._entrance.begin(ask_of(request, raw, call, steps), pending)
        except LargeMessage as large:

            def begin(parsed: ParsedRequest) -> None:
                self._entrance.begin(ask_of(parsed.request, parsed.raw, call, steps), pending)

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
            response = classify(model, response, pending.form)
        pieces = encode_in_pieces(model.name, model.version, pending.request_id, response)
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
