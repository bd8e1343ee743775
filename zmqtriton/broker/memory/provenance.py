"""Whether a stub may refer to the memory that it names: its own, what it was given with a request
that it has, within the bounds of that, and what it holds a lease of.

Asked by `blocks` before anybody reads or leases it, for what names memory at all. A fault of one
model must not show it what others were sent. Knows no sockets.
"""

from __future__ import annotations

from collections.abc import Iterable

from zmqtriton.broker.memory.leases import Leases
from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton_floor.arena import block_of
from zmqtriton_floor.errors import ProtocolError
from zmqtriton_floor.wire import Block, Reference, Tensor, decode_request, decode_response

#: Of a block: where what was given of it begins and ends.
_Given = dict[Block, tuple[int, int]]


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
        """Whether a response to the request may name these blocks, and lie there."""
        named = set(blocks)
        if not all(block_of(reference) in named for reference in references):
            return False
        if all(block.owner == stub for block in named):
            return True
        given = _given([request])
        return all(self._has(stub, block, given) for block in named) and all(
            self._covers(stub, reference, given) for reference in references
        )

    def may_ask(self, stub: int, requests: Iterable[InflightRequest], body: bytes) -> bool:
        """Whether the stub, which has these requests, may ask another model so."""
        try:
            references = _references(decode_request(body).inputs)
        except ProtocolError:
            return False
        if all(reference.owner == stub for reference in references):
            return True
        given = _given(requests)
        return all(self._covers(stub, reference, given) for reference in references)

    def has(self, stub: int, requests: Iterable[InflightRequest], blocks: Iterable[Block]) -> bool:
        """Whether the stub, which has these requests, may have all these blocks leased to it."""
        given = _given(requests)
        return all(self._has(stub, block, given) for block in blocks)

    def _has(self, stub: int, block: Block, given: _Given) -> bool:
        return block.owner == stub or block in given or self._leases.has(stub, block)

    def _covers(self, stub: int, reference: Reference, given: _Given) -> bool:
        block, start, end = extent_of(reference)
        if block.owner == stub or self._leases.covers(stub, block, start, end):
            return True
        low, high = given.get(block, (0, 0))
        return low <= start and end <= high


def extent_of(reference: Reference) -> tuple[Block, int, int]:
    """The block, and where in its segment the tensor begins and ends."""
    return block_of(reference), reference.offset, reference.offset + reference.size


def references_in_response(body: bytes) -> list[Reference]:
    """What a response refers to. Raises ProtocolError where it is none."""
    return _references(decode_response(body).outputs) if body else []


def _references(tensors: Iterable[Tensor]) -> list[Reference]:
    return [tensor.data for tensor in tensors if type(tensor.data) is Reference]


def _given(requests: Iterable[InflightRequest]) -> _Given:
    """What the inputs of these lie in."""
    found: _Given = {}
    for request in requests:
        try:
            references = _references(decode_request(request.body).inputs) if request.body else []
        except ProtocolError:
            continue
        for reference in references:
            block, start, end = extent_of(reference)
            low, high = found.get(block, (start, end))
            found[block] = min(low, start), max(high, end)
    return found
