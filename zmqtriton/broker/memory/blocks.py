"""The life of the blocks that outcomes refer to: leased, passed on, released, told to owners.

The account of leases keeps nothing leased to the dead; the owner's table is the authority. A stub
may name its own memory, what it was given with a request that it still has, within those bounds,
and what it holds a lease of: a fault in one model must not show it what others were sent. That is
checked before memory is read or leased. Knows no sockets.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from zmqtriton.broker.ensembles.runs import tensor_block
from zmqtriton.broker.outbox import Outbox
from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton.broker.scheduling.instances import Instance
from zmqtriton_floor.arena import block_of
from zmqtriton_floor.errors import InternalError, ProtocolError
from zmqtriton_floor.wire import (
    BROKER,
    FINAL,
    FORWARDED,
    HAS_REFERENCES,
    KEEPS_INPUTS,
    RESENT,
    Block,
    Outcome,
    Reference,
    Request,
    Tensor,
    decode_request,
    decode_response,
    make,
    references_in,
)

_FORGED = InternalError("the model referenced shared memory that it has no access to")
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
        # a lease for each reference, since each tensor is released by itself
        unnamed, foreign = [*blocks], []
        for reference in references:
            block = block_of(reference)
            if block not in unnamed:
                return False
            unnamed.remove(block)
        for block in set(blocks):
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


class Leases:
    """Leases by the serial of their holder."""

    def __init__(self) -> None:
        self._held: dict[int, dict[Block, int]] = {}
        #: The leases of all holders together.
        self._all: dict[Block, int] = {}
        #: The bytes of a held block that its holders know of: where they begin and end.
        self._extents: dict[Block, tuple[int, int]] = {}

    def lease(self, holder: int, blocks: Iterable[Block]) -> None:
        """Count blocks as held; they are with the holder or on their way to it."""
        held = self._held.get(holder)
        for block in blocks:
            if held is None:
                held = self._held[holder] = {}
            held[block] = held.get(block, 0) + 1
            self._all[block] = self._all.get(block, 0) + 1

    def widen_extent(self, block: Block, start: int, end: int) -> None:
        """Note that a process was told of these bytes of a block, and may tell others."""
        if block in self._all:
            low, high = self._extents.get(block, (start, end))
            self._extents[block] = min(low, start), max(high, end)

    def covers(self, holder: int, block: Block, start: int, end: int) -> bool:
        """True if a lease allows the holder to know of these bytes.

        Of a block that an earlier broker has leased, nobody knows which bytes it was told of: all
        are allowed.
        """
        low, high = self._extents.get(block, (start, end))
        return self.has(holder, block) and low <= start and end <= high

    def _drop(self, block: Block, count: int = 1) -> None:
        left = self._all.pop(block) - count
        if left > 0:
            self._all[block] = left
        else:
            self._extents.pop(block, None)

    def has(self, holder: int, block: Block) -> bool:
        held = self._held.get(holder)
        return held is not None and block in held

    def release(self, holder: int, blocks: Iterable[Block]) -> list[Block]:
        """Release blocks, and return those that the holder really had.

        The others were freed already, or were its own.
        """
        held = self._held.get(holder)
        if held is None:
            return []
        released = []
        for block in blocks:
            count = held.pop(block, 0)
            if count:
                released.append(block)
                self._drop(block)
            if count > 1:
                held[block] = count - 1
        if not held:
            del self._held[holder]
        return released

    def hand_over(self, holder: int, to: int, blocks: Iterable[Block]) -> None:
        """Move leases to another holder; owners need not be told."""
        blocks = [*blocks]
        extents = {block: self._extents[block] for block in blocks if block in self._extents}
        self.lease(to, self.release(holder, blocks))
        for block, extent in extents.items():
            self.widen_extent(block, *extent)

    def forget_holder(self, dead: int) -> list[Block]:
        """Drop all leases of a dead process, and all leases of its memory."""
        left = [block for block, count in self._held.pop(dead, {}).items() for _ in range(count)]
        for block in left:
            self._drop(block)
        for holder, held in list(self._held.items()):
            for block in [block for block in held if block.owner == dead]:
                self._drop(block, held.pop(block))
            if not held:
                del self._held[holder]
        return [block for block in left if block.owner != dead]

    @property
    def count(self) -> int:
        """Return the number of leases."""
        return sum(sum(held.values()) for held in self._held.values())


class Blocks:
    """Keeps the account of leases and tells the owners of blocks the consequences."""

    def __init__(self, outbox: Outbox, living: Container[int]) -> None:
        self.leases = Leases()
        self._provenance = Provenance(self.leases)
        #: How often stubs have referred to memory that they cannot know of.
        self.forged = 0
        #: Which broker this is. All but the first have leases to learn from their holders.
        self.epoch = 1
        #: The last epoch in which all holders have reported.
        self.settled_epoch = 1
        self._outbox = outbox
        #: The serials of living processes.
        self._living = living

    def admit_outcome(
        self, source: int, request: InflightRequest, outcome: Outcome, body: bytes
    ) -> tuple[Outcome, bytes]:
        """Check a stub's outcome and mark it for its receiver.

        It gets the flag PLACED if it refers to memory, and becomes an error if it refers to memory
        that the stub was never given.
        """
        peer, own_id, code, text, flags, number, blocks = outcome
        flags &= ~(HAS_REFERENCES | FORWARDED)
        if not blocks:
            return outcome._replace(flags=flags), body
        # What an earlier broker allowed cannot be checked here.
        is_right = bool(request.row.flags & RESENT) or not self._has_all_lease_reports
        may_answer = self._provenance.may_answer
        try:
            references = references_in_response(body)
            if (
                request.row.flags & KEEPS_INPUTS
                and flags & FINAL
                and request.miss is None  # or it goes to others, too
                and self._provenance.is_forwarded(request, blocks, references)
            ):
                flags |= HAS_REFERENCES | FORWARDED
                return make(Outcome, (peer, own_id, code, text, flags, number, [])), body
            is_right = is_right or may_answer(source, request, outcome.blocks, references)
        except ProtocolError:
            references = []
        if is_right:
            self.lease_outcome(source, outcome)
            for reference in references:
                self.leases.widen_extent(*extent_of(reference))
            flags |= HAS_REFERENCES
            return make(Outcome, (peer, own_id, code, text, flags, number, blocks)), body
        self.forged += 1
        self.discard(source, outcome)
        return outcome._replace(code=_FORGED.number, text=_FORGED.text, blocks=[]), b""

    @property
    def _has_all_lease_reports(self) -> bool:
        return self.settled_epoch == self.epoch

    def check_question(self, row: Request, body: bytes, asker: Instance | None) -> None:
        """Refuse a stub's request that refers to memory that the stub was never given."""
        is_old = not self._has_all_lease_reports or (row.flags & RESENT and self.epoch > 1)
        if asker is None or is_old:
            return
        if not self._provenance.may_ask(asker.serial, [*asker.open_requests.values()], body):
            self.forged += 1
            raise InternalError(_FORGED.text)

    def lease_outcome(self, source: int, outcome: Outcome) -> None:
        """Lease the blocks of an outcome that is on its way from a stub."""
        for block in outcome.blocks:
            if block.owner != source:  # passed on: whoever got it first still holds it as well
                self._outbox.leases.setdefault(block.owner, []).append(block)
        if outcome.peer == BROKER or outcome.peer in self._living:
            self.leases.lease(outcome.peer, outcome.blocks)
        else:
            self._tell_owners(outcome.blocks)

    def grant_lease(self, holder: int, blocks: list[Block]) -> None:
        """Lease a block whose reference will be used for longer than its owner would keep it."""
        living = [block for block in blocks if block.owner in self._living]
        for block in living:
            self._outbox.leases.setdefault(block.owner, []).append(block)
        self.leases.lease(holder, living)

    def grant_requested_lease(self, holder: Instance, blocks: list[Block]) -> None:
        """Lease blocks before their holder answers the request that brought them."""
        if self.epoch == 1 and not self._provenance.has(
            holder.serial, [*holder.open_requests.values()], blocks
        ):
            self.forged += 1
            return
        self.grant_lease(holder.serial, blocks)

    def discard(self, source: int, outcome: Outcome) -> None:
        """Release the blocks of an outcome that nobody gets."""
        self._tell_owners(block for block in outcome.blocks if block.owner == source)

    def release(self, holder: int, blocks: list[Block]) -> None:
        """Release blocks that a holder has read."""
        self._tell_owners(self.leases.release(holder, blocks))

    def hand_over(self, peer: int, blocks: list[Block]) -> None:
        """Pass the broker's own leases on to a peer, along with a response."""
        if peer in self._living:
            self.leases.hand_over(BROKER, peer, blocks)
        else:
            self.release(BROKER, blocks)

    def keep_inputs(
        self, dead: int, request: InflightRequest, inputs: Iterable[Tensor | None]
    ) -> None:
        """Keep the inputs of a request that outlives the process that made it.

        It may have passed on blocks that it was given itself, and was bound to keep those from
        being reused meanwhile.
        """
        blocks = [block for tensor in inputs if (block := tensor_block(tensor))]
        request.retained_blocks = [block for block in blocks if block.owner != dead]
        self.grant_lease(BROKER, request.retained_blocks)

    def forget_holder(self, dead: int) -> None:
        """Drop the leases of a dead process."""
        self._tell_owners(self.leases.forget_holder(dead))

    def _tell_owners(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            self._outbox.releases.setdefault(block.owner, []).append(block)


def inputs_in(body: bytes) -> list[Tensor]:
    """Return the inputs in a request's body; none if it is malformed."""
    try:
        return decode_request(body).inputs
    except ProtocolError:
        return []
