"""Checks that a stub may refer to the memory that it names.

A stub may name its own memory, what it was given with a request that it still has, within those
bounds, and what it holds a lease of. A fault in one model must not show it what others were sent.
`blocks.py` asks before anybody reads or leases memory. Knows no sockets.
"""

from __future__ import annotations

from collections.abc import Iterable

from zmqtriton.broker.memory.leases import Leases
from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton_floor.arena import block_of
from zmqtriton_floor.errors import ProtocolError
from zmqtriton_floor.wire import (
    Block,
    Reference,
    decode_request,
    decode_response,
    references_in,
)

#: The bytes of a block that a stub was given: where they begin and end. A Block is found by a
#: plain tuple, too.
_Extents = dict[tuple[int, int, int], tuple[int, int]]


class Provenance:
    def __init__(self, leases: Leases) -> None:
        self._leases = leases

    def may_answer(
        self,
        stub: int,
        request: InflightRequest,
        blocks: Iterable[Block],
        references: list[Reference],
    ) -> bool:
        """True if a response to this request may refer to these blocks."""
        named, foreign = set(blocks), []
        for reference in references:
            if reference[:3] not in named:  # as a block, without making one
                return False
        for block in named:
            if block.owner != stub:
                foreign.append(block)
        if not foreign:
            return True
        extents = _input_extents([request])
        for block in foreign:
            if not self._has(stub, block, extents):
                return False
        return all(self._covers(stub, reference, extents) for reference in references)

    def is_forwarded(
        self, request: InflightRequest, blocks: Iterable[Block], references: Iterable[Reference]
    ) -> bool:
        """True if a response refers to inputs of its request alone, in the memory of its peer."""
        peer = request.peer
        for block in blocks:
            if block.owner != peer:
                return False
        extents = _input_extents([request])
        for owner, segment, number, offset, size, _ in references:
            low, high = extents.get((owner, segment, number), (0, 0))
            if owner != peer or offset < low or offset + size > high:
                return False
        return True

    def may_ask(self, stub: int, requests: Iterable[InflightRequest], body: bytes) -> bool:
        """True if a stub that has these requests may make this request of another model."""
        try:
            references = references_in(decode_request(body).inputs)
        except ProtocolError:
            return False
        if all(reference.owner == stub for reference in references):
            return True
        extents = _input_extents(requests)
        return all(self._covers(stub, reference, extents) for reference in references)

    def has(self, stub: int, requests: Iterable[InflightRequest], blocks: Iterable[Block]) -> bool:
        """True if a stub that has these requests may be given leases of all these blocks."""
        extents = _input_extents(requests)
        return all(self._has(stub, block, extents) for block in blocks)

    def _has(self, stub: int, block: Block, extents: _Extents) -> bool:
        return block.owner == stub or block in extents or self._leases.has(stub, block)

    def _covers(self, stub: int, reference: Reference, extents: _Extents) -> bool:
        block, start, end = extent_of(reference)
        if block.owner == stub or self._leases.covers(stub, block, start, end):
            return True
        low, high = extents.get(block, (0, 0))
        return low <= start and end <= high


def extent_of(reference: Reference) -> tuple[Block, int, int]:
    """Return a tensor's block, and where in its segment the tensor begins and ends."""
    return block_of(reference), reference.offset, reference.offset + reference.size


def references_in_response(body: bytes) -> list[Reference]:
    """Return the memory that a response refers to. Raises ProtocolError if it is malformed."""
    return references_in(decode_response(body, has_places=True).outputs) if body else []


def _input_extents(requests: Iterable[InflightRequest]) -> _Extents:
    """Return the blocks of the inputs."""
    extents: _Extents = {}
    for request in requests:
        try:
            references = references_in(decode_request(request.body).inputs) if request.body else []
        except ProtocolError:
            continue
        for reference in references:
            block, start, end = extent_of(reference)
            low, high = extents.get(block, (start, end))
            extents[block] = min(low, start), max(high, end)
    return extents
