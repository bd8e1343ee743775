"""The life of the blocks that outcomes refer to: leased, passed on, released, told to owners."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from zmqtriton.broker.ensembles.runs import tensor_block
from zmqtriton.broker.memory.leases import Leases
from zmqtriton.broker.memory.provenance import Provenance, extent_of, references_in_response
from zmqtriton.broker.outbox import Outbox
from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton.broker.scheduling.instances import Instance
from zmqtriton_floor.errors import InternalError, ProtocolError
from zmqtriton_floor.wire import (
    BROKER,
    FINAL,
    FORWARDED,
    HAS_REFERENCES,
    KEEPS_INPUTS,
    RESENT,
    Block,
    Lease,
    Outcome,
    Request,
    Tensor,
    decode_request,
    make,
)

_FORGED = InternalError("the model referenced shared memory that it has no access to")


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

    def grant_requested_lease(
        self, holder: Instance, blocks: list[Block], send: Callable[[int, Lease, list[bytes]], bool]
    ) -> None:
        """Lease a block before its holder answers the request that brought it.

        `send` is the way that the answer takes: by another one the owner might hear of the lease
        after it has reused the block.
        """
        if self.epoch == 1 and not self._provenance.has(
            holder.serial, [*holder.open_requests.values()], blocks
        ):
            self.forged += 1
            return
        for block in blocks:
            if block.owner in self._living and send(block.owner, Lease([block]), []):
                self.leases.lease(holder.serial, [block])
            else:
                self.grant_lease(holder.serial, [block])

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
