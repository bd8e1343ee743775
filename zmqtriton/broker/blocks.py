"""What becomes of blocks that outcomes refer to: leased, passed on, released, told to owners."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from zmqtriton.broker.inflight import Inflight
from zmqtriton.broker.leases import BROKER, Leases
from zmqtriton.broker.outbox import Outbox
from zmqtriton.broker.runs import block_of
from zmqtriton_floor.errors import ProtocolError
from zmqtriton_floor.wire import Block, Lease, Outcome, Tensor, decode_request


class Blocks:
    """Keeps the account of leases and writes to owners what follows from it."""

    def __init__(self, outbox: Outbox, living: Container[int]) -> None:
        self.leases = Leases()
        self._outbox = outbox
        #: Serials of the processes that are there.
        self._living = living

    def give(self, source: int, outcome: Outcome) -> None:
        """An outcome is on its way from a stub to whoever asked, or to the broker itself."""
        for block in outcome.blocks:
            if block.owner != source:  # passed on: whoever got it first still holds it as well
                self._outbox.leases.setdefault(block.owner, []).append(block)
        if outcome.peer == BROKER or outcome.peer in self._living:
            self.leases.lease(outcome.peer, outcome.blocks)
        else:
            self._tell_owners(outcome.blocks)

    def borrow(self, holder: int, blocks: list[Block]) -> None:
        """A reference to somebody's blocks will be used for longer than they would be kept, or
        has been since the time of an earlier broker."""
        known = [block for block in blocks if block.owner in self._living]
        for block in known:
            self._outbox.leases.setdefault(block.owner, []).append(block)
        self.leases.lease(holder, known)

    def lend(
        self, holder: int, blocks: list[Block], send: Callable[[int, Lease, list[bytes]], bool]
    ) -> None:
        """The same before the holder answers the request that they came with. `send` goes the way
        of the answer: by another the owner might hear of this after it has taken them back."""
        for block in blocks:
            if block.owner in self._living and send(block.owner, Lease([block]), []):
                self.leases.lease(holder, [block])
            else:
                self.borrow(holder, [block])

    def discard(self, source: int, outcome: Outcome) -> None:
        """Nobody gets an outcome that a stub has sent."""
        self._tell_owners(block for block in outcome.blocks if block.owner == source)

    def release(self, holder: int, blocks: list[Block]) -> None:
        """A holder has read them."""
        self._tell_owners(self.leases.release(holder, blocks))

    def hand_over(self, peer: int, blocks: list[Block]) -> None:
        """What the broker holds goes to a peer along with a response."""
        if peer in self._living:
            self.leases.hand_over(BROKER, peer, blocks)
        else:
            self.release(BROKER, blocks)

    def keep(self, dead: int, requests: Iterable[Inflight]) -> None:
        """Requests of a dead process that still execute: it may have passed on what it was given,
        and was bound to see that nobody uses that for something else meanwhile."""
        for request in requests:
            blocks = [block for tensor in _inputs(request) if (block := block_of(tensor))]
            request.kept = [block for block in blocks if block.owner != dead]
            self.borrow(BROKER, request.kept)

    def let_go(self, request: Inflight) -> None:
        """It is answered."""
        if request.kept:
            self.release(BROKER, request.kept)

    def bury(self, dead: int) -> None:
        """A process is dead: it holds nothing any more."""
        self._tell_owners(self.leases.bury(dead))

    def _tell_owners(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            self._outbox.releases.setdefault(block.owner, []).append(block)


def _inputs(request: Inflight) -> list[Tensor | None]:
    run = request.run
    if run is not None:
        return [run.waves[0].tensors.get(name) for name in run.plan.inputs]
    try:
        return [*decode_request(request.body).inputs]
    except ProtocolError:
        return []
