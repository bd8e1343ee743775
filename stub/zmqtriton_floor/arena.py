"""The arena: shared memory that one process owns, and where others read its large tensors.

It consists of segments, memfds that the supervisor makes on request, cut into blocks of whole
pages. GPU memory, which a stub may add, is cut in the same way, and only its address is known here.
A block is free again when each of its leases has ended. Owned by frontends and stubs. It sends
no messages: when it is full, `segment_request` returns the segment that it needs, and the caller
obtains that from the supervisor.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import operator
import os
import threading
import time
from typing import Any, Callable, Iterable

from zmqtriton_floor.errors import Unavailable
from zmqtriton_floor.leases import Leases
from zmqtriton_floor.process.named_tuples import NamedTuple
from zmqtriton_floor.wire import (
    MAX_ROWS,
    Block,
    CreateSegment,
    FreeSegment,
    HeldBlocks,
    Reference,
    make,
)

PAGE = mmap.PAGESIZE
#: Value of a `gpu` argument that means memory of the CPU; real GPUs count from 0.
HOST = -1

#: Tensors up to this size travel inside messages: copying them costs less than mapping.
INLINE_BYTES = 64 * 1024
#: Blocks above this size get segments of their own.
LARGE_BYTES = 4 << 20
#: Each further segment of a pool is twice as large, so that there are few, up to this size.
_MAX_POOL_SEGMENT = 16 << 20
#: An empty segment is given back after this time.
IDLE_S = 5.0

#: Segments from this number on have arrays of a user's code, which may write to them at any time.
#: Nothing there can be passed on: an answer that refers to it would change.
USERS_FROM = 1 << 31


# The kernel's numbers: not every Python that models bring along has names for them.
_F_ADD_SEALS, _F_GET_SEALS = 1033, 1034
_SEAL_SEAL, SEAL_SHRINK, SEAL_GROW, _SEAL_FUTURE_WRITE = 1, 2, 4, 16
_MAP_POPULATE = 0x8000
MADV_POPULATE_WRITE = 23  # since Linux 5.14
#: Errors of a call that this kernel lacks, that the file system does not support, or that a
#: container forbids. Memory is then made in another way, or at its first use.
_NO_SUCH_CALL = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EACCES})


def seal_size(descriptor: int) -> None:
    """Seal the size of a memfd, so that no process can crash its readers by truncating it."""
    fcntl.fcntl(descriptor, _F_ADD_SEALS, SEAL_SHRINK | SEAL_GROW)


def is_size_sealed(descriptor: int) -> bool:
    """True if the size is sealed; False for files of other kinds, too."""
    try:
        seals = fcntl.fcntl(descriptor, _F_GET_SEALS)
    except OSError:
        return False
    return bool(seals & SEAL_SHRINK)


def populate(descriptor: int, start: int, size: int) -> None:
    """Allocate the memory of a range of a file, and keep its content. Raises OSError.

    Without it a process that writes into the mapped file would be killed.
    """
    try:
        os.posix_fallocate(descriptor, start, size)
    except OSError as error:
        if error.errno not in _NO_SUCH_CALL:
            raise
        # each page in turn, as the C library does for file systems without it
        for offset in (start, *range(start // PAGE * PAGE + PAGE, start + size, PAGE)):
            os.pwrite(descriptor, os.pread(descriptor, 1, offset) or b"\0", offset)


def block_bytes(size: int) -> int:
    """Return the size of a block for this number of bytes.

    Whole pages, in steps of at least an eighth, so that tensors of about the same size fit into
    each other's holes.
    """
    step = PAGE
    while step * 16 <= size:
        step *= 2
    return max(PAGE, -(-size // step) * step)


class Allocation(NamedTuple):
    """A new block with one lease; its owner writes it before it sends a reference to the block."""

    #: The memory, or its address if it is on a GPU.
    view: Any
    reference: Reference

    @property
    def block(self) -> Block:
        return block_of(self.reference)


def block_of(reference: Reference) -> Block:
    return make(Block, reference[:3])


def held(blocks: list[Block]) -> list[HeldBlocks]:
    """Return the messages that report all leases to a new broker."""
    starts = range(0, len(blocks) or 1, MAX_ROWS)
    return [HeldBlocks(blocks[i : i + MAX_ROWS], int(i + MAX_ROWS >= len(blocks))) for i in starts]


class _Pages:
    """The pages of a segment; their memory is allocated from the beginning on, as needed."""

    def __init__(self, descriptor: int, memory: mmap.mmap) -> None:
        self._descriptor = descriptor
        self._memory = memory
        #: The bytes that are made.
        self.made = 0

    def make(self, end: int) -> None:
        """Allocate all pages before this position. Raises OSError if memory is short."""
        start, end = self.made, min(-(-end // PAGE) * PAGE, len(self._memory))
        if end <= start:
            return
        try:  # populate() could not write to a sealed file
            os.posix_fallocate(self._descriptor, start, end - start)
        except OSError as error:
            if error.errno not in _NO_SUCH_CALL:
                raise
        try:
            self._memory.madvise(MADV_POPULATE_WRITE, start, end - start)
        except OSError as error:  # an older kernel does this at the first write to each page
            if error.errno not in {errno.EINVAL, *_NO_SUCH_CALL}:
                raise
        self.made = end
        if end == len(self._memory):
            self.close()

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class _Segment:
    """A mapped segment; its holes are sorted by offset and never touch each other."""

    def __init__(
        self,
        number: int,
        size: int,
        memory: Any,
        pages: _Pages | None,
        *,
        is_pool: bool,
        now_s: float,
    ) -> None:
        self.number = number
        self.is_users = number >= USERS_FROM
        self.size = size
        self.memory = memory
        #: None if all of them are there.
        self.pages = pages
        #: Address of `memory` in this process. locate() computes it when it is first needed; 0
        #: before.
        self.address = 0
        self.is_pool = is_pool
        self.holes: list[tuple[int, int]] = [(0, size)]
        #: When it was last used, if it is empty.
        self.left_s = now_s

    @property
    def is_empty(self) -> bool:
        return self.holes == [(0, self.size)]

    def cut(self, size: int) -> int | None:
        """Cut a block out of the first hole that fits, and return its offset; None if none fits.

        To take the first one keeps the others large.
        """
        for i, (offset, room) in enumerate(self.holes):
            if room >= size:
                self.holes[i : i + 1] = [(offset + size, room - size)] if room > size else []
                return offset
        return None

    def mend(self, offset: int, size: int) -> None:
        """Turn the block into a hole again."""
        holes, end = self.holes, offset + size
        i = 0
        while i < len(holes) and holes[i][0] < offset:
            i += 1
        if i < len(holes) and holes[i][0] == end:
            end += holes.pop(i)[1]
        if i and sum(holes[i - 1]) == offset:
            i -= 1
            offset = holes.pop(i)[0]
        holes.insert(i, (offset, end - offset))


_size_of = operator.attrgetter("size")


class _Used(NamedTuple):
    segment: _Segment
    offset: int
    size: int


class Arena:
    """All segments of this process. Thread-safe; destructors may also use the leases."""

    def __init__(
        self,
        owner: int,
        *,
        first_bytes: int = 1 << 20,
        step_bytes: int = 1 << 20,
        is_gradual: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create an empty arena; if it `is_gradual`, make() allocates memory of large segments."""
        #: Serial number of this process, with which every reference to its blocks begins.
        self.owner = owner
        self._first_bytes = first_bytes
        self._step_bytes = step_bytes
        self._is_gradual = is_gradual
        self._clock = clock
        self.segments: dict[int, _Segment] = {}
        #: Segments on GPUs, by GPU and number. They are never given back, since no message reports
        #: that the last reader has closed one.
        self._on_gpus: dict[int, dict[int, _Segment]] = {}
        #: Numbers of requested segments, with True for those of the pool.
        self._requests: dict[int, bool] = {}
        self._used: dict[int, _Used] = {}
        self.leases = Leases()
        self._last_segment = 0
        self._last_block = 0
        self._lock = threading.RLock()
        self._is_inside = False

    # ---------------------------------------------------------------- blocks

    def allocate(self, size: int, gpu: int = HOST, *, is_users: bool = False) -> Allocation | None:
        """Allocate a block; None if there is no room, and the arena has to grow first.

        `is_users` marks a block that a user's code may write to at any time.
        """
        with self._lock:
            # A destructor, in the thread that is in the middle of this very function.
            if self._is_inside:
                return None
            self._is_inside = True
            try:
                self._apply_leases()
                segments = self.segments if gpu == HOST else self._those_of(gpu)
                return self._allocate(size, segments, is_users)
            finally:
                self._is_inside = False

    def _those_of(self, gpu: int) -> dict[int, _Segment]:
        return self.segments if gpu == HOST else self._on_gpus.setdefault(gpu, {})

    def _allocate(
        self, size: int, segments: dict[int, _Segment], is_users: bool
    ) -> Allocation | None:
        room = block_bytes(size)
        is_pool = room <= LARGE_BYTES
        candidates = segments.values()
        for segment in candidates if is_pool else self._large(room, candidates):
            is_right = segment.is_pool == is_pool and segment.is_users == is_users
            offset = segment.cut(room) if is_right else None
            if offset is not None:
                self._last_block = number = self._last_block + 1
                self._used[number] = make(_Used, (segment, offset, room))
                self.leases.begin(number)
                memory = segment.memory
                is_host = segments is self.segments
                view = memoryview(memory)[offset : offset + size] if is_host else memory + offset
                row = (self.owner, segment.number, number, offset, size, b"")
                return make(Allocation, (view, make(Reference, row)))
        return None

    @staticmethod
    def _large(room: int, segments: Iterable[_Segment]) -> list[_Segment]:
        """Return the segments that fit one large block, the smallest first.

        Segments of twice the block's size are left for larger blocks.
        """
        large = [s for s in segments if not s.is_pool and room <= s.size < 2 * room]
        return sorted(large, key=_size_of)

    def make(self, block: int, size: int) -> None:
        """Allocate the memory of a block's first `size` bytes, where it is missing.

        Raises Unavailable if memory is short.
        """
        segment, offset, _ = self._used[block]
        if segment.pages is None:
            return
        try:
            segment.pages.make(offset + size)
        except OSError as error:
            raise Unavailable(f"Failed to allocate shared memory. {error.strerror}") from None

    def size(self, block: int) -> int:
        """Return the size of a block; 0 if it does not exist."""
        used = self._used.get(block)
        return used.size if used is not None else 0

    def doubt_leases(self) -> None:
        """Doubt the leases that were given out through a dead broker; see Leases.doubt()."""
        with self._lock:
            self._apply_leases()
            self.leases.doubt()

    def _apply_leases(self) -> None:
        freed = self.leases.apply()
        if freed:
            now_s = self._clock()
            for block in freed:
                segment, offset, size = self._used.pop(block)
                segment.mend(offset, size)
                segment.left_s = now_s

    def locate(self, view: memoryview) -> Reference | None:
        """Return a reference to bytes in a block of this arena; None if they are elsewhere."""
        with self._lock:
            for segment in self.segments.values():
                if view.obj is segment.memory:
                    break
            else:
                return None
            if not segment.address:
                segment.address = address_of(segment.memory)
            offset = address_of(view) - segment.address
            for number, (where, start, size) in self._used.items():
                if where is segment and start <= offset < start + size:
                    return make(
                        Reference, (self.owner, segment.number, number, offset, view.nbytes, b"")
                    )
        return None

    # -------------------------------------------------------------- segments

    def segment_request(
        self, size: int, gpu: int = HOST, *, is_scarce: bool = False, is_users: bool = False
    ) -> CreateSegment:
        """Return the request for a segment with room for a block of this size.

        If memory `is_scarce`, the segment fits this block alone; otherwise it has room for more
        blocks.
        """
        room = block_bytes(size)
        with self._lock:
            self._last_segment += 1
            number = self._last_segment + USERS_FROM * is_users
            self._requests[number] = is_pool = room <= LARGE_BYTES
            if is_pool and not is_scarce:
                those = self._those_of(gpu).values()
                pool = sum(s.size for s in those if s.is_pool and s.is_users == is_users)
                step = max(self._step_bytes, min(pool, _MAX_POOL_SEGMENT))
                room = max(room, step if pool else self._first_bytes)
                room = -(-room // PAGE) * PAGE
        is_gradual = self._is_gradual and gpu == HOST and not is_pool
        return CreateSegment(number, room, is_gradual=int(is_gradual))

    def add(self, made: CreateSegment, descriptor: int) -> None:
        """Add a requested segment. Raises Unavailable if its memory cannot be allocated.

        Closes the descriptor afterwards: then the mapping is all that the owner needs.
        """
        size, flags = made.size, mmap.MAP_SHARED
        try:
            if not made.is_gradual:
                # Now, so that full memory is an error here and kills nobody who writes into it.
                populate(descriptor, 0, size)
                flags |= _MAP_POPULATE
            memory = mmap.mmap(descriptor, size, flags=flags)
            fcntl.fcntl(descriptor, _F_ADD_SEALS, _SEAL_FUTURE_WRITE | _SEAL_SEAL)
        except (OSError, ValueError) as error:
            os.close(descriptor)
            raise self.refuse(made, getattr(error, "strerror", None) or str(error)) from None
        pages = _Pages(descriptor, memory)
        if not made.is_gradual:
            pages.close()
        self.hold(made, memory, pages=pages if made.is_gradual else None)

    def hold(
        self, made: CreateSegment, memory: Any, gpu: int = HOST, pages: _Pages | None = None
    ) -> None:
        """Add a segment whose memory exists already; for a GPU, `memory` is an address."""
        number, now_s = made.segment, self._clock()
        with self._lock:
            self._those_of(gpu)[number] = _Segment(
                number, made.size, memory, pages, is_pool=self._requests.pop(number), now_s=now_s
            )

    def refuse(self, made: CreateSegment, reason: str) -> Unavailable:
        """Return the error for a requested segment that the supervisor could not create."""
        self._requests.pop(made.segment, None)
        return Unavailable(
            "Failed to increase the shared memory pool size to "
            f"{self.bytes + made.size} bytes. {reason}"
        )

    def trim(self, idle_s: float = IDLE_S) -> list[FreeSegment]:
        """Give up segments that were empty for this long.

        The caller must send the returned messages to the supervisor.
        """
        if not self.segments:
            return []
        with self._lock:
            if self._is_inside:
                return []
            self._apply_leases()
            latest_s = self._clock() - idle_s
            idle = [s for s in self.segments.values() if s.is_empty and s.left_s <= latest_s]
            return list(map(self._give_up, idle))

    def abandon(self, block: int) -> list[FreeSegment]:
        """End the lease of a block that will not be used, and give up a segment made for it."""
        self.leases.end([block])
        with self._lock:
            used = self._used.get(block)
            if self._is_inside or used is None:
                return []
            self._apply_leases()
            segment = used.segment
            is_idle = segment.is_empty and not segment.is_pool and segment.number in self.segments
            return [self._give_up(segment)] if is_idle else []

    def _give_up(self, segment: _Segment) -> FreeSegment:
        del self.segments[segment.number]
        if segment.pages is not None:
            segment.pages.close()
        return FreeSegment(segment.number)

    def next_trim_s(self) -> float | None:
        """Return in how many seconds trim() has work to do; None before something is freed."""
        if not self.segments:
            return None
        with self._lock:
            if self._is_inside:
                return None
            self._apply_leases()
            left = [s.left_s for s in self.segments.values() if s.is_empty]
        return max(0.0, min(left) + IDLE_S - self._clock()) if left else None

    @property
    def bytes(self) -> int:
        """Return the size of all segments, except those on GPUs."""
        return sum(segment.size for segment in list(self.segments.values()))

    def bytes_on(self, gpu: int) -> int:
        return sum(segment.size for segment in list(self._those_of(gpu).values()))

    @property
    def used(self) -> int:
        """Return the number of blocks in use."""
        return len(self._blocks())

    @property
    def unused_bytes(self) -> int:
        """Return the number of bytes of segments that no block occupies, except on GPUs."""
        with self._lock:
            return self.bytes - sum(
                [u.size for u in self._blocks().values() if u.segment.number in self.segments]
            )

    def _blocks(self) -> dict[int, _Used]:
        with self._lock:
            if not self._is_inside:
                self._apply_leases()
            return self._used


def address_of(memory: Any) -> int:
    """Return the address of writable memory in this process."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))
