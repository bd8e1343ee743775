"""The request of either inference RPC: a message becomes an Ask."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError

from zmqtriton_floor.wire import make
from zmqtriton_frontends.entrance.ask import Ask, Step
from zmqtriton_frontends.grpc_api.call import Call
from zmqtriton_frontends.grpc_api.inference.convert import malformed, read_content
from zmqtriton_frontends.grpc_api.inference.gradual_parsing import (
    LARGE_BYTES,
    LargeMessage,
    ParsedRequest,
)
from zmqtriton_frontends.grpc_api.inference.raw_tensors import MIN_BYTES, split_raw
from zmqtriton_frontends.inference.request_trace import now_ns
from zmqtriton_protos import message

_REQUEST = message("inference.ModelInferRequest")


def header_of(call: Call, name: bytes) -> str | None:
    """Return the value of a client's metadata; values of one name have commas between them.

    None if there is no such text.
    """
    key = name.decode()
    values = [value for k, value in call.metadata if k == key and isinstance(value, str)]
    return ",".join(values) if values else None


def parse_request(data: bytes | ParsedRequest) -> tuple[Any, Sequence[Any]]:
    """Return an inference.ModelInferRequest and its raw tensors.

    Raises InvalidArgument, and LargeMessage for one that is to be given again when it is parsed.
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
    call: Call,
    steps: tuple[Step, ...] = (),
    *,
    takes_streams: bool = False,
) -> Ask:
    """Return what a message asks for, for a client that reads many responses or just one."""
    target = request.model_name, request.model_version
    read = partial(read_content, request, raw, takes_streams)
    header = partial(header_of, call)
    parts = (
        target,
        read,
        header,
        lambda: call.metadata,
        call.grant,
        call.deadline_ns,
        now_ns(),
        steps,
    )
    return make(Ask, parts)
