"""Large tensors of a stub: the model's own are in its arena, other processes' are mapped.

Thread-safe. The supervisor makes segments, and passes on other processes' segments.
"""

from __future__ import annotations

import json
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Callable, Iterable, Sequence

import numpy as np

from zmqtriton_floor.arena import IDLE_S, INLINE_BYTES, Allocation, Arena, block_bytes
from zmqtriton_floor.cache_keys import keys_of
from zmqtriton_floor.errors import MEMORY_GONE, ProtocolError, Unavailable
from zmqtriton_floor.leases import Leases
from zmqtriton_floor.mappings import REGIONS_FROM
from zmqtriton_floor.memory_kinds import make_arena, make_mappings
from zmqtriton_floor.settings.stub import Memory
from zmqtriton_floor.tensors import address_of
from zmqtriton_floor.wire import (
    ACCEPTS_GPU,
    WANT_DIGESTS,
    Block,
    CreateSegment,
    FreeSegment,
    Lease,
    LeasesReported,
    OpenSegment,
    Reference,
    Release,
    SegmentOpened,
    Tensor,
    encode,
    make,
)
from zmqtriton_stub.broker.line import BrokerLine
from zmqtriton_stub.memory import gpu
from zmqtriton_stub.memory.gpu import DeviceSpan
from zmqtriton_stub.memory.region_outputs import RegionOutputs
from zmqtriton_stub.memory.tensor_forwarding import ForwardedTensor, TensorForwarding
from zmqtriton_stub.supervisor_client import NO_ANSWER, SupervisorClient

if TYPE_CHECKING:
    from zmqtriton_stub.memory.gpu_memory import OnGpus

#: Number of blocks of a peer above which those that are free again are removed.
_MANY = 256


class ClientMemory:
    """The memory of this process for clients, by the frontend that serves them. Thread-safe.

    The frontend books arrived responses and refuses those without room. Responses that it has not
    read yet, or that wait here for slow readers, may take as much again.
    """

    def __init__(self, arena: Arena, limit: int) -> None:
        self._arena = arena
        self._limit = limit
        #: Reentrant, as a destructor within may end a stream.
        self._lock = threading.RLock()
        #: The sizes of blocks by their numbers, by peer; and those of a peer together.
        self._blocks: dict[int, dict[int, int]] = {}
        self._bytes: dict[int, int] = {}
        #: Bytes of responses queued in this process, by peer.
        self._kept: dict[int, int] = {}

    def keep(self, peer: int, more: int) -> None:
        """Add a number, which may be negative, to the bytes that are queued here for a peer."""
        with self._lock:
            kept = self._kept.get(peer, 0) + more
            if kept:
                self._kept[peer] = kept
            else:
                self._kept.pop(peer, None)

    def add(self, peer: int, blocks: Iterable[int]) -> None:
        """Record blocks of a response that is sent to a peer."""
        with self._lock:
            noted = self._blocks.setdefault(peer, {})
            for block in blocks:
                noted[block] = size = self._arena.size(block)
                self._bytes[peer] = self._bytes.get(peer, 0) + size
            if len(noted) > _MANY:
                self._forget_free(peer)

    def is_full(self, peer: int) -> bool:
        """Return whether a peer must release blocks before it gets more."""
        return not self._is_below(self._limit, peer)

    def may_keep(self, peer: int) -> bool:
        """Return whether further bytes may wait in this process for a peer."""
        return self._is_below(self._limit - self._kept.get(peer, 0), peer)

    def _is_below(self, limit: int, peer: int) -> bool:
        if self._bytes.get(peer, 0) < limit:
            return True
        with self._lock:
            self._forget_free(peer)
            return self._bytes.get(peer, 0) < limit

    def _forget_free(self, peer: int) -> None:
        noted = self._blocks.get(peer)
        if noted is None or not self._arena.used:  # which looks what is free
            self._blocks.pop(peer, None)
            self._bytes.pop(peer, None)
            return
        for block in [block for block in noted if not self._arena.size(block)]:
            self._bytes[peer] -= noted.pop(block)


class MadeOutputs:
    """The blocks for outputs that the model fills in place. Thread-safe.

    A block has a lease as long as the model has an array over it, and another lease for each
    response that refers to it. Sends no messages.
    """

    def __init__(self, allocate: Callable[[int], Allocation], leases: Leases) -> None:
        """Set up; `allocate` raises Unavailable if memory is short."""
        self._allocate = allocate
        self._leases = leases
        #: End address of each block, and the reference to all of it, by the address of its begin.
        self.blocks: dict[int, tuple[int, Reference]] = {}

    def make(self, size: int) -> Any:
        """Return a new block as an array of bytes; the block ends with the last array over it.

        Raises Unavailable if memory is short.
        """
        allocation = self._allocate(size)
        array: Any = np.frombuffer(allocation.view, np.uint8)
        reference = allocation.reference
        start = address_of(array)
        self.blocks[start] = start + reference.size, reference
        weakref.finalize(array, self._end, start, reference.block).atexit = False
        return array

    def find(self, data: memoryview) -> Reference | None:
        """Return the reference to these bytes; None if they are not in one of the blocks."""
        start = address_of(np.frombuffer(data, np.uint8))
        for low, (high, whole) in [*self.blocks.items()]:
            if low <= start and start + len(data) <= high:
                owner, segment, block, offset, *_ = whole
                return make(
                    Reference, (owner, segment, block, offset + start - low, len(data), b"")
                )
        return None

    def _end(self, start: int, block: int) -> None:
        # before the block can be another one
        self.blocks.pop(start, None)
        self._leases.end([block])


#: Other threads may take what was just made.
_TRIES = 8
#: Models are seldom loaded anew, and one that takes no GPU's tensor then copies it itself.
_KNOWN_S = 1.0
#: Bytes of responses that a frontend may hold beyond --client-memory-byte-size.
_BEYOND = 64 << 20


class TensorMemory:
    """The arena of this process, and the mappings of other processes' segments."""

    def __init__(
        self,
        supervisor: SupervisorClient,
        line: BrokerLine,
        serial: int,
        memory: Memory,
        *,
        maps_regions: bool = True,
    ) -> None:
        """Set up; blocks of other processes are released over the line to the broker.

        A process that must survive clients' actions does not map their regions.
        """
        self.arena = make_arena(serial, memory)
        self.for_clients = ClientMemory(self.arena, memory.client_bytes + _BEYOND)
        self.mappings = make_mappings(memory, is_private=True, on_release=self.release)
        self._maps_regions = maps_regions
        self.regions = RegionOutputs(
            self.mappings,
            self._map,
            lambda *name: None if self._gpus is None else self._gpus.writable(*name),
        )
        self.passing = TensorForwarding(self.mappings, self._lease_own)
        self.outputs = MadeOutputs(self._allocate, self.arena.leases)
        self._line = line
        self._supervisor = supervisor
        supervisor.subscribe(SegmentOpened, self._segment_opened)
        #: Made when the first tensor on a GPU comes or goes.
        self._gpus: OnGpus | None = None
        #: Answers of the supervisor about other models, and their times, by question, name and
        #: version.
        self._model_facts: dict[tuple[str, str, int], tuple[float, bool]] = {}
        #: When to look again for segments to give back.
        self._trim_at_s = 0.0
        #: Keys of requests to models with a response cache; None if the server has no cache.
        self.keys = keys_of(memory.cache_secret)

    # ------------------------------------------------------------------ arena

    def place(
        self,
        rows: list[Tensor],
        find: Callable[[Any], ForwardedTensor | None] | None = None,
        flags: int = 0,
    ) -> tuple[list[Tensor], list[Block]]:
        """Return the tensors with references for large data, and their blocks, each with one lease.

        Data that `find` finds are not copied. Data on a GPU stay there with the flag ON_GPU. Raises
        Unavailable if memory is short; nothing is leased then.
        """
        placed: list[Tensor] = []
        blocks: list[Block] = []
        try:
            for row in rows:
                if row.data is None:  # it is in its place already
                    placed.append(row)
                    continue
                if len(row.data) > INLINE_BYTES or type(row.data) is DeviceSpan:
                    data, named = self._place(row.data, find, flags)
                    blocks += named
                    if (
                        flags & WANT_DIGESTS
                        and self.keys is not None
                        and type(row.data) is not DeviceSpan
                    ):
                        data = data._replace(digest=self.keys.digest(row.data))
                    row = make(Tensor, (row.name, row.datatype, row.shape, data))
                placed.append(row)
        except BaseException:
            self.free(blocks)
            raise
        return placed, blocks

    def _place(
        self, data: Any, find: Callable[[Any], ForwardedTensor | None] | None, flags: int
    ) -> tuple[Any, list[Block]]:
        is_on_gpu = type(data) is DeviceSpan
        if is_on_gpu and flags & ACCEPTS_GPU:
            return self._on_gpus().place(data)
        if is_on_gpu and len(data) <= INLINE_BYTES:
            return gpu.downloaded(data), []
        if type(data) is memoryview:
            if self.outputs.blocks:
                reference = self.outputs.find(data)
                if reference is not None:
                    self.arena.leases.add([reference.block])
                    return reference, [make(Block, reference[:3])]
            place = find(data) if find is not None else None
            if place is not None:
                return place
        allocation = self._allocate(len(data))
        try:
            if is_on_gpu:
                gpu.driver().to_host(allocation.view, data)
            else:
                allocation.view[:] = data
        except BaseException:
            self.free([allocation.block])
            raise
        reference = allocation.reference
        return reference, [make(Block, reference[:3])]

    def _on_gpus(self) -> OnGpus:
        if self._gpus is None:
            from zmqtriton_stub.memory.gpu_memory import (
                OnGpus,  # most stubs never meet such tensors
            )

            self._gpus = OnGpus(self.arena, self._register, self.release)
        return self._gpus

    def takes_gpu(self, model: str, version: int) -> bool:
        """Return whether inputs for another model may be on a GPU."""
        return self._knows("takes_gpu", model, version)

    def is_hashed(self, model: str, version: int) -> bool:
        """Return whether requests to another model, or to its members, use the response cache."""
        return self.keys is not None and self._knows("is_hashed", model, version)

    def _knows(self, verb: str, model: str, version: int) -> bool:
        known_s, answer = self._model_facts.get((verb, model, version), (0.0, False))
        if time.monotonic() - known_s > _KNOWN_S:
            answer = self._supervisor.call(verb, json.dumps({"model": model, "version": version}))
            self._model_facts[verb, model, version] = time.monotonic(), answer
        return answer

    def _register(self, made: CreateSegment) -> str:
        """Register GPU memory with the supervisor; return why that failed, or ""."""
        answer = self._supervisor.ask(made, (made.segment,))
        return NO_ANSWER if answer is None else answer[0].text

    def own(self, blocks: Iterable[Block]) -> list[int]:
        """Return the numbers of the blocks that are in this process's arena."""
        owner, own = self.arena.owner, []
        for block in blocks:
            if block.owner == owner:
                own.append(block.block)
        return own

    def free(self, blocks: Iterable[Block], after: int = 0) -> None:
        """End leases on this process's own blocks, once the broker has sent `after` leases."""
        self.arena.leases.end(self.own(blocks), after)

    def answered(self, blocks: list[Block], after: int = 0) -> None:
        """End the leases of a call's inputs after its final reply, and after `after` leases."""
        self.free(blocks, after)
        owner = self.arena.owner
        released = self.passing.give_back([block for block in blocks if block.owner != owner])
        if released:
            self.release(released)

    def leave(self, inputs: Sequence[Block]) -> list[Block]:
        """Return the inputs that are still needed when a request is about to be answered.

        Each is returned once for each lease that must be added before.
        """
        leased = self.passing.leave(inputs)
        return leased if self._gpus is None else leased + self._gpus.borrowed.leave(inputs)

    def held(self) -> list[Block]:
        """Return the leases of others' blocks that this process has."""
        on_gpus = [] if self._gpus is None else self._gpus.borrowed.leased()
        return self.mappings.leased() + self.passing.leased() + on_gpus

    def hear_of_blocks(self, message: Any) -> bool:
        """Process the broker's message about our blocks; False for another message."""
        kind, arena = type(message), self.arena
        if kind is Release:
            arena.leases.take_back(self.own(message.blocks))
        elif kind is Lease:
            arena.leases.take_leases(self.own(message.blocks))
        elif kind is LeasesReported:
            arena.leases.end_doubted()
        else:
            return False
        return True

    def _lease_own(self, block: Block) -> bool:
        is_own = block.owner == self.arena.owner
        if is_own:
            self.arena.leases.add([block.block])
        return is_own

    def size(self, blocks: Iterable[Block]) -> int:
        """Return the total bytes of these blocks in our segments."""
        owner, arena = self.arena.owner, self.arena
        return sum(arena.size(block.block) for block in blocks if block.owner == owner)

    def _allocate(self, size: int) -> Allocation:
        for _ in range(_TRIES):
            allocation = self.arena.allocate(size) or self._grow(size)
            if allocation is not None:
                return allocation
        raise Unavailable("Failed to allocate shared memory.")

    def _grow(self, size: int) -> Allocation | None:
        """Add a segment and return None, or return a block that has become free.

        Raises Unavailable if memory is short.
        """
        for is_last_try in (False, True):
            request = self.arena.segment_request(size, is_scarce=is_last_try)
            answer = self._supervisor.ask(request, (request.segment,))
            try:
                if answer is None or answer[1] < 0:
                    raise self.arena.refuse(
                        request, NO_ANSWER if answer is None else answer[0].text
                    )
                self.arena.add(request, answer[1])
                return None
            except Unavailable:
                # if it was made in spite of that, it would count, and stay, for ever
                idle = self.arena.trim(0)
                self._drop([FreeSegment(request.segment), *idle])
                can_ask_for_less = request.size > block_bytes(size)
                allocation = self.arena.allocate(size)
                if allocation is not None:  # a block was freed, or is not kept apart any more
                    return allocation
                if is_last_try or answer is None or not (idle or can_ask_for_less):
                    raise
        return None

    def trim(self) -> float | None:
        """Give back segments that have been empty for a while; return the seconds to wait.

        None: until the next message. It looks no more often, because a look costs as much as the
        memory of a request.
        """
        now_s = time.monotonic()
        if now_s < self._trim_at_s:
            return self._trim_at_s - now_s
        self._drop(self.arena.trim())
        again_s = self.arena.next_trim_s()
        self._trim_at_s = now_s + (IDLE_S if again_s is None else again_s)
        return again_s

    def _drop(self, segments: list[FreeSegment]) -> None:
        for segment in segments:
            self._supervisor.send(segment)

    # --------------------------------------------------------------- mappings

    def open(
        self,
        rows: list[Tensor],
        *,
        is_leased: bool,
        takes_gpu: bool = False,
        on_opened: Callable[[], object] = lambda: None,
    ) -> tuple[list[Tensor], list[Block]]:
        """Return the tensors with views for their references, and the blocks of these.

        Leased blocks are released when nothing reads them any more, even if this raises Unavailable
        because memory is gone. Data on a GPU are copied to the CPU unless the model takes them
        there. Calls `on_opened` under the lock of the mappings; from then on `held` has the leases.
        """
        references, blocks = [], []
        for row in rows:
            if type(row.data) is Reference:
                references.append(row.data)
                blocks.append(make(Block, row.data[:3]))
        if not references:
            return rows, []
        try:
            for owner, segment in self.mappings.missing(references):
                self._map(owner, segment)
            with self.mappings.lock:
                if self._gpus is not None:
                    rows = self._gpus.open(rows, is_leased=is_leased, takes_gpu=takes_gpu)
                    references = [row.data for row in rows if type(row.data) is Reference]
                arrays = iter(self.mappings.open(references, is_leased=is_leased))
                on_opened()
        except BaseException:
            if is_leased:
                self.release(blocks)
            raise
        opened = []
        for row in rows:
            if type(row.data) is Reference:
                name, datatype, shape, _ = row
                row = make(Tensor, (name, datatype, shape, memoryview(next(arrays))))
            opened.append(row)
        return opened, blocks

    def _map(self, owner: int, segment: int) -> None:
        if self._gpus is not None and self._gpus.borrowed.has(owner, segment):
            return
        answer = self._supervisor.ask(OpenSegment(owner, segment), (owner, segment))
        if answer is None:
            raise Unavailable(f"a tensor cannot be read: {NO_ANSWER}")
        if isinstance(answer[0], Unavailable):
            raise answer[0]
        if not answer[0].size:
            raise Unavailable(MEMORY_GONE)
        if answer[0].handle:
            borrowed = self._on_gpus().borrowed
            add = borrowed.add if segment < REGIONS_FROM else borrowed.add_region
            add(owner, segment, answer[0].handle, answer[0].size)

    def release(self, blocks: list[Block]) -> None:
        """Tell the owners of blocks that this process no longer reads them."""
        self._line.send([encode(Release(blocks))])

    def _segment_opened(self, message: SegmentOpened, descriptor: int) -> None:
        key = (message.owner, message.segment)
        answer: Any = message
        if descriptor >= 0:
            try:
                is_copied = bool(message.is_copied) or not self._maps_regions
                self.mappings.add(*key, descriptor, is_copied=is_copied)
            except ProtocolError:
                answer = message._replace(size=0)
            except Unavailable as shortage:
                answer = shortage
        elif not message.handle:
            self.mappings.remove(*key)
            self.regions.forget(*key)
            if self._gpus is not None:
                self._gpus.borrowed.remove(*key)
        self._supervisor.settle(key, (answer, descriptor))
