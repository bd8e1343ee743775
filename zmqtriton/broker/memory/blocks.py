"""The life of the blocks that outcomes refer to: leased, passed on, released, told to owners.

The account of leases drops the leases of dead holders. The owner's table is the authority; for a
dead owner this account is (`SegmentsOfTheDead`). A stub may refer to its own memory, to the
inputs of requests that it still has, and to memory that it has a lease on: a fault in one model
must not reveal others' data to it. References are checked before memory is read or leased. A model
is accused of a fault only if no broker can have given it the memory: this broker does not know the
memory lent by dead owners whose last lease has ended, nor, before a request is repeated, the inputs
that an earlier broker has sent with it. Knows no sockets.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping

from zmqtriton.broker.ensembles.runs import tensor_block
from zmqtriton.broker.outbox import Outbox
from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton.broker.scheduling.instances import Instance
from zmqtriton_floor.arena import block_of
from zmqtriton_floor.errors import (
    MEMORY_GONE,
    InternalError,
    ProtocolError,
    Unavailable,
    ZmqTritonError,
)
from zmqtriton_floor.execution_progress import RequestKey
from zmqtriton_floor.wire import (
    BROKER,
    FINAL,
    FORWARDED,
    HAS_REFERENCES,
    KEEPS_INPUTS,
    MAX_ROWS,
    RESENT,
    Block,
    LeasedSegments,
    Outcome,
    Reference,
    Request,
    Tensor,
    decode_request,
    decode_response,
    make,
    references_in,
)

_FORGED = "the model referenced shared memory that it has no access to"
_ENDED = "the request that a tensor came with has ended with the process that made it"
#: The end of a range that no tensor reaches beyond.
_EVERYTHING = 1 << 64
#: The bytes of a block that a stub was given: where they begin and end. A Block is found by a
#: plain tuple, too.
_Extents = dict[tuple[int, int, int], tuple[int, int]]


def extent_of(reference: Reference) -> tuple[Block, int, int]:
    """Return a tensor's block, and where in its segment the tensor begins and ends."""
    return block_of(reference), reference.offset, reference.offset + reference.size


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


class HolderLeases:
    """Leases by the serial number of their holder."""

    def __init__(self) -> None:
        self._held: dict[int, dict[Block, int]] = {}
        #: The leases of all holders together.
        self._all: dict[Block, int] = {}
        #: The bytes of a held block that its holders know of: where they begin and end.
        self._extents: dict[Block, tuple[int, int]] = {}

    def lease(self, holder: int, blocks: Iterable[Block]) -> None:
        """Count blocks as held; the holder has them, or will have them soon."""
        held = self._held.get(holder)
        for block in blocks:
            if held is None:
                held = self._held[holder] = {}
            held[block] = held.get(block, 0) + 1
            self._all[block] = self._all.get(block, 0) + 1

    def widen_extent(self, block: Block, start: int, end: int) -> None:
        """Widen the known extent of a block: holders may refer to these bytes and pass them on."""
        if block in self._all:
            low, high = self._extents.get(block, (start, end))
            self._extents[block] = min(low, start), max(high, end)

    def covers(self, holder: int, block: Block, start: int, end: int) -> bool:
        """True if a lease allows the holder to refer to these bytes."""
        low, high = self._extents.get(block, (start, end))
        return self.has(holder, block) and low <= start and end <= high

    def _drop(self, block: Block) -> None:
        left = self._all.pop(block) - 1
        if left > 0:
            self._all[block] = left
        else:
            self._extents.pop(block, None)

    def has(self, holder: int, block: Block) -> bool:
        held = self._held.get(holder)
        return held is not None and block in held

    def release(self, holder: int, blocks: Iterable[Block]) -> list[Block]:
        """Release blocks, and return the blocks that the holder really had.

        The other blocks were freed before, or were its own.
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
        """Move leases to another holder; owners get no message, since they only count leases."""
        blocks = [*blocks]
        extents = {block: self._extents[block] for block in blocks if block in self._extents}
        self.lease(to, self.release(holder, blocks))
        for block, extent in extents.items():
            self.widen_extent(block, *extent)

    def forget_holder(self, dead: int) -> list[Block]:
        """Drop and return all leases that a dead process held. Leases of its own memory stay."""
        left = self.held_by(dead)
        for block in left:
            self._drop(block)
        self._held.pop(dead, None)
        return left

    def held_by(self, holder: int) -> list[Block]:
        """Return the blocks of a holder, each as often as it has a lease."""
        return [*Counter(self._held.get(holder, {})).elements()]

    def sizes(self) -> list[tuple[int, int, int]]:
        """Return holder, owner and bytes of leased blocks, where this broker knows the bytes."""
        sizes: Counter[tuple[int, int]] = Counter()
        for holder, counts in self._held.items():
            for block in counts:
                start, end = self._extents.get(block, (0, 0))
                sizes[holder, block.owner] += 0 if end == _EVERYTHING else end - start
        return [(*pair, size) for pair, size in sizes.items()]

    @property
    def blocks(self) -> Collection[Block]:
        """Return the blocks that have a lease."""
        return self._all.keys()

    @property
    def count(self) -> int:
        """Return the number of leases."""
        return sum(sum(held.values()) for held in self._held.values())

    # ------------------------------------------------- what a stub may refer to

    def strange_in_answer(
        self,
        stub: int,
        request: InflightRequest,
        blocks: Iterable[Block],
        references: list[Reference],
    ) -> list[Block]:
        """Return the blocks that a response to this request must not use."""
        # a lease for each reference, since each tensor is released by itself
        unnamed, foreign = [*blocks], []
        for reference in references:
            block = block_of(reference)
            if block not in unnamed:
                return [block]
            unnamed.remove(block)
        for block in set(blocks):
            if block.owner != stub:
                foreign.append(block)
        if not foreign:
            return []
        extents = _input_extents([request])
        strange = [block for block in foreign if not self._has(stub, block, extents)]
        return strange or self._uncovered(stub, references, extents)

    def is_forwarded(
        self, request: InflightRequest, blocks: Iterable[Block], references: Iterable[Reference]
    ) -> bool:
        """True if a response refers only to inputs of its request, in the memory of its peer."""
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

    def strange_in_question(
        self, stub: int, requests: Iterable[InflightRequest], references: list[Reference]
    ) -> list[Block]:
        """Return the blocks that a stub with these requests must not use in its own request."""
        if all(reference.owner == stub for reference in references):
            return []
        return self._uncovered(stub, references, _input_extents(requests))

    def may_lease(
        self, stub: int, requests: Iterable[InflightRequest], blocks: Iterable[Block]
    ) -> bool:
        """True if a stub that has these requests may be given leases of all these blocks."""
        extents = _input_extents(requests)
        return all(self._has(stub, block, extents) for block in blocks)

    def _has(self, stub: int, block: Block, extents: _Extents) -> bool:
        return block.owner == stub or block in extents or self.has(stub, block)

    def _uncovered(
        self, stub: int, references: Iterable[Reference], extents: _Extents
    ) -> list[Block]:
        return [block_of(one) for one in references if not self._covers(stub, one, extents)]

    def _covers(self, stub: int, reference: Reference, extents: _Extents) -> bool:
        block, start, end = extent_of(reference)
        if block.owner == stub or self.covers(stub, block, start, end):
            return True
        low, high = extents.get(block, (0, 0))
        return low <= start and end <= high


class SegmentsOfTheDead:
    """The memory of dead processes that others still read: the supervisor keeps it for them.

    A segment stays for as long as one of its blocks has a lease, or an early response whose request
    is not yet repeated. A broker that follows another knows these only once each process has
    reported its leases, and reports nothing before.
    """

    def __init__(self, outbox: Outbox, used_blocks: Callable[[], Iterable[Block]]) -> None:
        """Set up; `used_blocks` returns all owners' blocks that a process reads or will read."""
        self._outbox = outbox
        self._used_blocks = used_blocks
        #: Segments that the supervisor keeps, as this broker has last reported them, by dead owner;
        #: None before the first report.
        self._kept: dict[int, set[int] | None] = {}
        #: Dead owners whose used segments may have changed since the last report.
        self.changed: set[int] = set()

    def add(self, owner: int) -> None:
        """Add a dead process; the next report names its segments that are still read."""
        self._kept[owner] = None
        self.changed.add(owner)

    def __contains__(self, owner: object) -> bool:
        return owner in self._kept

    def __iter__(self) -> Iterator[int]:
        return iter(self._kept)

    def tell(self) -> None:
        """Report to the supervisor which segments are still read.

        Call this only once all leases are known.
        """
        used: dict[int, set[int]] = {owner: set() for owner in self.changed}
        for block in self._used_blocks():
            if block.owner in used:
                used[block.owner].add(block.segment)
        self.changed.clear()
        for owner, segments in used.items():
            if segments != self._kept[owner] and len(segments) <= MAX_ROWS:
                self._kept[owner] = segments
                self._outbox.supervisor.append(LeasedSegments(owner, sorted(segments)))
            if not segments:
                del self._kept[owner]


class Blocks:
    """Keeps the account of leases and notifies the owners of blocks."""

    def __init__(
        self, outbox: Outbox, living: Container[int], received: Mapping[RequestKey, int]
    ) -> None:
        """Set up; `received` has the stubs of requests that an earlier broker had, by requests."""
        self.leases = HolderLeases()
        #: Number of stubs' messages that referred to memory which the stub was never given.
        self.forged = 0
        #: Epoch of this broker. Each broker but the first (1) has to learn the existing leases from
        #: their holders.
        self.epoch = 1
        #: Epoch of the last broker that received lease reports from all holders.
        self.settled_epoch = 1
        self._outbox = outbox
        #: The serials of living processes.
        self._living = living
        self._received = received
        self.dead = SegmentsOfTheDead(outbox, self._used_blocks)
        #: Returns the blocks of outcomes whose requests have not been repeated yet.
        self.early_blocks: Callable[[], Iterable[Block]] = tuple

    def admit_outcome(
        self, source: int, request: InflightRequest, outcome: Outcome, body: bytes
    ) -> tuple[Outcome, bytes]:
        """Check a stub's outcome and mark it for its receiver.

        The outcome gets the flag HAS_REFERENCES if it refers to memory, and FORWARDED if it refers
        only to its request's inputs. It becomes an error if it refers to memory that the stub was
        never given.
        """
        peer, own_id, code, text, flags, number, blocks = outcome
        flags &= ~(HAS_REFERENCES | FORWARDED)
        if not blocks:
            return outcome._replace(flags=flags), body
        # What an earlier broker allowed cannot be checked here.
        is_old = bool(request.flags & RESENT) or not self._has_all_lease_reports
        refusal: ZmqTritonError | None = None
        try:
            # raises ProtocolError for a malformed one
            references = (
                references_in(decode_response(body, has_places=True).outputs) if body else []
            )
            if (
                request.flags & KEEPS_INPUTS
                and flags & FINAL
                and request.miss is None  # or it goes to others, too
                and self.leases.is_forwarded(request, blocks, references)
            ):
                flags |= HAS_REFERENCES | FORWARDED
                return make(Outcome, (peer, own_id, code, text, flags, number, [])), body
            if not is_old:
                strange = self.leases.strange_in_answer(source, request, blocks, references)
                refusal = self._refusal(source, strange) if strange else None
        except ProtocolError:
            references, refusal = [], None if is_old else self._accuse()
        if refusal is None:
            self.lease_outcome(source, outcome)
            for reference in references:
                self.leases.widen_extent(*extent_of(reference))
            flags |= HAS_REFERENCES
            return make(Outcome, (peer, own_id, code, text, flags, number, blocks)), body
        self.discard(source, outcome)
        return outcome._replace(code=refusal.number, text=refusal.text, blocks=[]), b""

    @property
    def _has_all_lease_reports(self) -> bool:
        return self.settled_epoch == self.epoch

    def check_question(self, row: Request, body: bytes, asker: Instance | None) -> None:
        """Refuse a stub's request that refers to memory that the stub was never given."""
        is_old = not self._has_all_lease_reports or (row.flags & RESENT and self.epoch > 1)
        if asker is None or is_old:
            return
        try:
            references = references_in(decode_request(body).inputs)
        except ProtocolError:
            raise self._accuse() from None
        requests = [*asker.open_requests.values()]
        strange = self.leases.strange_in_question(asker.serial, requests, references)
        refusal = self._refusal(asker.serial, strange) if strange else None
        if refusal is not None:
            raise refusal

    def _refusal(self, stub: int, strange: list[Block]) -> ZmqTritonError | None:
        """Return the error for memory that a stub was not given, as far as this broker knows.

        None if the memory may have come with a request that is not yet repeated.
        """
        if all(block.owner not in self._living for block in strange):
            return Unavailable(MEMORY_GONE)
        # who made its requests in an earlier broker's time, and has not repeated them yet
        askers = {peer for (peer, _), its_stub in self._received.items() if its_stub == stub}
        if any(peer in self._living for peer in askers):
            return None
        return Unavailable(_ENDED) if askers else self._accuse()

    def _accuse(self) -> ZmqTritonError:
        self.forged += 1
        return InternalError(_FORGED)

    def lease_outcome(self, source: int, outcome: Outcome) -> None:
        """Lease the blocks of an outcome that is on its way from a stub."""
        for block in outcome.blocks:
            # passed on: whoever got it first still holds it as well
            if block.owner != source and block.owner in self._living:
                self._outbox.leases.setdefault(block.owner, []).append(block)
        if outcome.peer == BROKER or outcome.peer in self._living:
            self.leases.lease(outcome.peer, outcome.blocks)
        else:
            self._tell_owners(outcome.blocks)

    def lease_repeated(self, source: int, outcome: Outcome) -> None:
        """Lease the blocks of an answer that a stub repeats: its earlier leases are uncertain."""
        own = [block for block in outcome.blocks if block.owner == source]
        if own:
            self._outbox.leases.setdefault(source, []).extend(own)

    def grant_lease(self, holder: int, blocks: list[Block]) -> None:
        """Lease a block whose reference will be used for longer than its owner would keep it."""
        for block in blocks:
            if block.owner in self._living:
                self._outbox.leases.setdefault(block.owner, []).append(block)
        there = [one for one in blocks if one.owner in self._living or one.owner in self.dead]
        self.leases.lease(holder, there)

    def take_report(self, holder: int, blocks: list[Block]) -> None:
        """Lease blocks that a process has held since the time of an earlier broker.

        Only the earlier broker knew which bytes the process was given, so all bytes are allowed.
        """
        self.grant_lease(holder, blocks)
        for block in blocks:
            self.leases.widen_extent(block, 0, _EVERYTHING)

    def grant_requested_lease(self, holder: Instance, blocks: list[Block]) -> None:
        """Lease blocks before their holder answers the request that brought them."""
        if self.epoch == 1 and not self.leases.may_lease(
            holder.serial, [*holder.open_requests.values()], blocks
        ):
            self.forged += 1
            return
        self.grant_lease(holder.serial, blocks)

    def discard(self, source: int, outcome: Outcome) -> None:
        """Release the blocks of an outcome that reaches no receiver."""
        own = source, *self.dead
        self._tell_owners(block for block in outcome.blocks if block.owner in own)

    def release(self, holder: int, blocks: list[Block]) -> None:
        """Release blocks that a holder has read."""
        self._tell_owners(self.leases.release(holder, blocks))

    def hand_over(self, peer: int, blocks: list[Block]) -> None:
        """Pass the broker's own leases on to a peer, along with a response."""
        if peer in self._living:
            self.leases.hand_over(BROKER, peer, blocks)
        else:
            self.release(BROKER, blocks)

    def keep_inputs(self, request: InflightRequest, inputs: Iterable[Tensor | None]) -> None:
        """Keep the inputs of a request that outlives the process that made it.

        The process may have passed on blocks that it was given itself, and had to keep these from
        reuse.
        """
        request.retained_blocks = _blocks_of(inputs)
        self.grant_lease(BROKER, request.retained_blocks)

    def keep_read(self, instance: int, guest: int, requests: Iterable[InflightRequest]) -> None:
        """Let a living guest hold its instance's blocks, and the inputs of these requests.

        The instance's thread continues, and may read these blocks as long as the guest lives.
        """
        self.leases.hand_over(instance, guest, self.leases.held_by(instance))
        for request in requests:
            self.grant_lease(guest, _blocks_of(inputs_in(request.body)))

    def forget_peer(self, dead: int) -> None:
        """Drop the leases of a dead process; others' leases of its memory stay."""
        self._outbox.leases.pop(dead, None)
        self._outbox.releases.pop(dead, None)
        self.dead.add(dead)
        self._tell_owners(self.leases.forget_holder(dead))

    def tell_of_the_dead(self) -> None:
        """Report to the supervisor which memory of the dead is free, once all leases are known."""
        if self._has_all_lease_reports:
            self.dead.tell()

    def _used_blocks(self) -> Iterable[Block]:
        return itertools.chain(self.leases.blocks, self.early_blocks())

    def _tell_owners(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            if block.owner in self._living:
                self._outbox.releases.setdefault(block.owner, []).append(block)
            elif block.owner in self.dead:
                self.dead.changed.add(block.owner)  # a lease of its memory may have ended


def _blocks_of(inputs: Iterable[Tensor | None]) -> list[Block]:
    return [block for one in inputs if (block := tensor_block(one))]


def inputs_in(body: bytes) -> list[Tensor]:
    """Return the inputs in a request's body; none if it is malformed."""
    try:
        return decode_request(body).inputs
    except ProtocolError:
        return []
