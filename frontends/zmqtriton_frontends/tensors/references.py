"""What of requests and responses lies, or shall lie, in shared memory.

Asked by the payload and by those who decide whether it is needed at all. Opens nothing.
"""

from __future__ import annotations

from zmqtriton_floor import wire
from zmqtriton_floor.arena import INLINE_BYTES, block_of
from zmqtriton_floor.errors import ProtocolError
from zmqtriton_floor.wire import Block, Reference, RequestBody, ResponseBody


def is_large(body: RequestBody) -> bool:
    """Whether a tensor of the request has to be placed."""
    return any(len(tensor.data) > INLINE_BYTES for tensor in body.inputs)


def has_references(response: ResponseBody) -> bool:
    return any(type(tensor.data) is Reference for tensor in response.outputs)


class PlacedBody(bytes):
    """The body of a response whose references the broker has checked."""

    __slots__ = ()


def read_response(body: bytes) -> ResponseBody:
    """Raises ProtocolError where it is none, or refers to memory and nobody has checked that."""
    response = wire.decode_response(body)
    if type(body) is not PlacedBody and has_references(response):
        raise ProtocolError("the response refers to memory that it may not")
    return response


def references_of(response: ResponseBody) -> list[Reference]:
    return [tensor.data for tensor in response.outputs if type(tensor.data) is Reference]


def blocks_of(data: bytes) -> list[Block]:
    """What a response refers to, by its body."""
    return [block_of(r) for r in references_of(wire.decode_response(data))] if data else []
