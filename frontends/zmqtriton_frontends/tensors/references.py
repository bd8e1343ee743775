"""References to the parts of requests and responses that lie, or are to lie, in shared memory.

Opens nothing.
"""

from __future__ import annotations

from contextlib import suppress

from zmqtriton_floor import wire
from zmqtriton_floor.arena import INLINE_BYTES, block_of
from zmqtriton_floor.errors import ProtocolError
from zmqtriton_floor.wire import Block, Reference, RequestBody, ResponseBody
from zmqtriton_frontends.inference.client_regions import RegionContents


def is_large(body: RequestBody) -> bool:
    """True if a tensor of the request has to be placed."""
    for tensor in body.inputs:
        if type(tensor.data) is RegionContents or len(tensor.data) > INLINE_BYTES:
            return True
    return False


def has_references(response: ResponseBody) -> bool:
    for tensor in response.outputs:  # noqa: SIM110 - any() calls a generator for each
        if type(tensor.data) is Reference:
            return True
    return False


class PlacedBody(bytes):
    """The body of a response whose references the broker has checked."""

    __slots__ = ()


def read_response(body: bytes, *, has_places: bool = False) -> ResponseBody:
    """Read a response. Raises ProtocolError if it is malformed or has unchecked references.

    Outputs without data are right if the request `has_places`.
    """
    may_refer = type(body) is PlacedBody
    return wire.decode_response(body, may_refer=may_refer, has_places=has_places)


def size_of(body: bytes) -> int:
    """Return the memory that a response takes: that of its body and of what it refers to."""
    size = len(body)
    if type(body) is PlacedBody:
        with suppress(ProtocolError):
            size += sum(reference.size for reference in _references_in(body))
    return size


def blocks_of(data: bytes) -> list[Block]:
    """Return the blocks that a response refers to, by its body."""
    return [block_of(reference) for reference in _references_in(data)] if data else []


def _references_in(body: bytes) -> list[Reference]:
    return wire.references_in(wire.decode_response(body, has_places=True).outputs)
