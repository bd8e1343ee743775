"""The segments of other processes' arenas, mapped at their first use.

A frontend maps read-only. A stub maps private and writable, since models may change their inputs;
pages that they have changed are dropped with the last array over them, and pages that were only
read stay mapped. No reference is trusted: it is compared with the segment as the kernel knows it.
Sends no messages: the caller obtains descriptors.

A block is kept from its owner's next use neither for a process that has left, nor for a fork. So
arrays outlive both by one rule: **before mappings close, and before their process forks, arrays get
private copies of the pages that they read** (`detach_all`).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import weakref
from contextlib import suppress
from typing import Any, Callable, Iterable, Sequence, Tuple

from zmqtriton_floor.arena import (
    MADV_POPULATE_WRITE,
    PAGE,
    USERS_FROM,
    address_of,
    is_size_sealed,
)
from zmqtriton_floor.errors import InternalError, ProtocolError, Unavailable
from zmqtriton_floor.wire import Block, Reference, make

#: A segment: its owner and the owner's number for it.
Name = Tuple[int, int]

#: Segments from this number on are clients' own memory. The supervisor gives them out only if the
#: operator trusts clients: they can truncate them under their readers.
REGIONS_FROM = 1 << 32

#: An entry of /proc/self/pagemap.
_ENTRY_BYTES = 8
#: Bits of an entry's last byte: the page is in memory, is swapped out, is the file's own.
_PRESENT, _SWAPPED, _OF_FILE = 128, 64, 32
#: Table for bytes.translate(), from the last byte of an entry to 1 if the page is a private copy,
#: else 0. It takes a tenth of the time that numpy would.
_IS_OWN = bytes(bool(b & (_PRESENT | _SWAPPED)) and not b & _OF_FILE for b in range(256))
#: Seconds to wait for a lock before a fork. It is held for a few steps, and longer only by a thread
#: that is in the middle of its own end.
_PATIENCE_S = 1.0

_mprotect = ctypes.CDLL(None, use_errno=True).mprotect
_mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Pagemap:
    """The kernel's account of the pages of the process that creates it.

    It is read before the pages that a model has changed are dropped: mapping pages again costs ten
    times as much, and most models only read.
    """

    def __init__(self, path: str = "/proc/self/pagemap") -> None:
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # a sandbox without it
            self._descriptor = -1
        self._pid = os.getpid()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def is_unwritten(self, address: int, size: int) -> bool:
        """True if every page in this range of a private mapping is the file's own or not present.

        False if one is a private copy, or if that is unknown.
        """
        # a fork would be told of its parent's pages
        if self._descriptor < 0 or self._pid != os.getpid():
            return False
        count = (address + size + PAGE - 1) // PAGE - address // PAGE
        try:
            entries = os.pread(
                self._descriptor, count * _ENTRY_BYTES, address // PAGE * _ENTRY_BYTES
            )
        except OSError:
            return False
        kinds = entries[_ENTRY_BYTES - 1 :: _ENTRY_BYTES]
        return len(kinds) == count and 1 not in kinds.translate(_IS_OWN)


#: Placeholder for the memory of a segment that is not mapped, but read through its descriptor.
_COPIED: Any = b""


class _Segment:
    """A mapped segment. Python unmaps it when the last array over it is gone."""

    def __init__(self, memory: Any, size: int, descriptor: int) -> None:
        self.memory = memory
        self.size = size
        #: File of a segment in a process with private mappings: where a page has become a private
        #: copy, it still has what the owner wrote. -1 in other processes.
        self.descriptor = descriptor
        is_private = descriptor >= 0 and memory is not _COPIED
        #: Address in this process; 0 for memory that no model writes to, or that is not mapped.
        self.address = address_of(memory) if is_private else 0
        #: The views that are still read, by their id().
        self.views: dict[int, _View] = {}
        #: Begin and end of copies that a process has which only reads.
        self.copies: set[tuple[int, int]] = set()

    def drop_copies(self) -> None:
        """Show the owner's memory again where no array reads a copy of it."""
        # one whose array has ended is not read, though its callback may not have run
        views = [view for view in [*self.views.values()] if view() is not None]
        for start, end in [*self.copies]:
            if not any(view.start < end and start < view.end for view in views):
                self.memory.madvise(mmap.MADV_DONTNEED, start, end - start)
                self.copies.discard((start, end))

    def overlaps(self, start: int, end: int) -> bool:
        for view in [*self.views.values()]:  # noqa: SIM110 - any() calls a generator for each
            if view.start < end and start < view.end:
                return True
        return False


class _View(weakref.ref):  # type: ignore[type-arg]
    """The part of a segment that arrays read; the segment keeps it until they are gone."""

    __slots__ = ("block", "end", "is_own", "kept", "leased", "segment", "start")

    segment: _Segment
    block: Block
    #: The blocks to release, one entry for each reference.
    leased: list[Block]
    #: The object that keeps the memory mapped while there is no lease.
    kept: object
    #: Detached: its pages are this process's own.
    is_own: bool
    start: int
    end: int


class Mappings:
    """The mapped segments of other processes. Thread-safe; arrays may end in any thread."""

    def __init__(
        self, *, is_private: bool, on_release: Callable[[list[Block]], None] | None = None
    ) -> None:
        """Create an empty set; `on_release` gets leased blocks that nothing reads any more.

        Destructors call it as well, so it must not wait.
        """
        self._is_private = is_private
        self._pagemap = Pagemap() if is_private else None
        self._on_release = on_release or (lambda blocks: None)
        self._segments: dict[Name, _Segment] = {}
        self.lock = threading.RLock()
        _of_process.add(self)

    # -------------------------------------------------------------- segments

    def add(self, owner: int, segment: int, descriptor: int, *, is_copied: bool = False) -> None:
        """Map a segment and take over the descriptor.

        A segment that `is_copied` is not mapped: each read copies the bytes through its descriptor.
        Raises ProtocolError if it could be truncated under its readers, Unavailable if there is no
        room for it.
        """
        if (owner, segment) in self._segments:  # two have requested it
            os.close(descriptor)
            return
        memory = None
        try:
            is_region = segment >= REGIONS_FROM and self._is_private  # no frontend maps one
            if not is_region and not is_size_sealed(descriptor):
                raise ProtocolError(f"segment {segment} of {owner} is not sealed")
            size = os.fstat(descriptor).st_size
            if is_region:
                memory = _COPIED
                if not is_copied:
                    with suppress(OSError, ValueError):  # memory is short, or the file is empty
                        memory = _private(descriptor, size)
            elif self._is_private:
                memory = _private(descriptor, size)
            else:
                # what others write is seen as in a shared one, until a page becomes our own
                memory = mmap.mmap(descriptor, size, mmap.MAP_PRIVATE, mmap.PROT_READ)
        except ValueError as error:
            raise ProtocolError(f"segment {segment} of {owner} cannot be mapped: {error}") from None
        except OSError as error:
            raise Unavailable(
                f"a tensor cannot be read: {error.strerror}; send the request again"
            ) from None
        finally:
            if memory is None or not self._is_private:
                os.close(descriptor)
        with self.lock:
            kept = descriptor if self._is_private else -1
            self._segments[owner, segment] = _Segment(memory, size, kept)

    def descriptor(self, owner: int, segment: int) -> int:
        """Return the descriptor of a segment that is mapped privately; -1 for other segments."""
        mapping = self._segments.get((owner, segment))
        return -1 if mapping is None or mapping.memory is _COPIED else mapping.descriptor

    def remove(self, owner: int, segment: int) -> None:
        """Drop a segment that its owner has dropped.

        The memory stays mapped while arrays read it.
        """
        with self.lock:
            mapping = self._segments.pop((owner, segment), None)
            if mapping is not None and mapping.descriptor >= 0:
                os.close(mapping.descriptor)

    def close(self) -> None:
        """Drop all segments. Call this before the end of this process is reported to others."""
        self.detach_all()
        for view in self._views():
            array = view()
            if array is not None:  # else it releases them itself
                leased, view.leased = view.leased, []
                self._on_release(leased)
            del array
        for owner, segment in list(self._segments):
            self.remove(owner, segment)
        if self._pagemap is not None:
            self._pagemap.close()

    def has(self, owner: int, segment: int) -> bool:
        return (owner, segment) in self._segments

    def missing(self, references: Iterable[Reference]) -> list[Name]:
        """Return the segments that have to be added before these references can be opened."""
        missing: list[Name] = []
        for reference in references:
            name = reference.owner, reference.segment
            if name not in self._segments and name not in missing:
                missing.append(name)
        return missing

    # --------------------------------------------------------------- reading

    def leased(self) -> list[Block]:
        """Return the leased blocks that are still read."""
        with self.lock:
            views = self._views()
        return [block for view in views for block in view.leased]

    def _views(self) -> list[_View]:
        """Return the views that may still be read; the lock is held."""
        return [v for s in self._segments.values() for v in list(s.views.values())]

    def open(
        self, references: Sequence[Reference], *, is_leased: bool = False, kept: object = None
    ) -> list[Any]:
        """Return the bytes of each reference as an array; the last of them drops `kept`.

        Raises ProtocolError, with nothing opened, if one of them is not inside its segment.
        """
        ranges: dict[Block, tuple[int, int]] = {}
        leases: dict[Block, list[Block]] = {}
        blocks: list[Block] = []
        #: Positions of references to an earlier reference's bytes: the model may change one.
        repeated: set[int] = set()
        with self.lock:
            for reference in references:
                segment = self._segments.get((reference.owner, reference.segment))
                if segment is not None and reference.offset + reference.size > segment.size:
                    segment = self._grown(reference, segment)
                check_inside(reference, None if segment is None else segment.size)
                block = make(Block, reference[:3])
                end = reference.offset + reference.size
                if block in ranges and self._is_private and _repeats(references, len(blocks)):
                    repeated.add(len(blocks))
                blocks.append(block)
                low, high = ranges.get(block, (reference.offset, end))
                ranges[block] = min(low, reference.offset), max(high, end)
                leases.setdefault(block, []).append(block)
            opened = {}
            for block, (low, high) in ranges.items():
                opened[block] = self._open(
                    block, low, high, leases[block] if is_leased else [], kept
                )
        arrays: list[Any] = []
        for reference, block in zip(references, blocks):
            start, whole = opened[block]
            offset = reference.offset - start
            array = whole[offset : offset + reference.size]
            arrays.append(array.copy() if len(arrays) in repeated else array)
        return arrays

    def _grown(self, reference: Reference, segment: _Segment) -> _Segment:
        """Map a region again if its client has enlarged the file since it was mapped."""
        descriptor, memory = segment.descriptor, segment.memory
        if reference.segment < REGIONS_FROM or descriptor < 0:
            return segment
        with suppress(OSError, ValueError):  # memory is short
            size = os.fstat(descriptor).st_size
            if size > segment.size:
                memory = memory if memory is _COPIED else _private(descriptor, size)
                views, segment = segment.views, _Segment(memory, size, descriptor)
                segment.views = views
                self._segments[reference.owner, reference.segment] = segment
        return segment

    def _open(
        self, block: Block, low: int, high: int, leased: list[Block], kept: object
    ) -> tuple[int, Any]:
        """Return the offset of the array within the segment, and the array."""
        segment = self._segments[block.owner, block.segment]
        if segment.copies:
            segment.drop_copies()
        start, end = low // PAGE * PAGE, min(-(-high // PAGE) * PAGE, segment.size)
        if self._is_private and (segment.memory is _COPIED or segment.overlaps(start, end)):
            # Another request has the same tensor, or a model has kept an array here: this one must
            # not see its changes, and pages of its own hide those of the owner.
            copy = _read(segment.descriptor, start, end)
            if leased:
                self._on_release(leased)
            return start, copy
        import numpy as np  # a process that reads nothing large can do without it

        if end == start:
            return start, np.empty(0, np.uint8)
        array = np.frombuffer(segment.memory, np.uint8, end - start, start)
        view = _View(array, self._close)
        view.segment, view.block, view.leased, view.kept = segment, block, leased, kept
        view.start, view.end, view.is_own = start, end, False
        segment.views[id(view)] = view
        return start, array

    def _close(self, view: Any) -> None:
        segment, size = view.segment, view.end - view.start
        pagemap = self._pagemap
        if pagemap and not pagemap.is_unwritten(segment.address + view.start, size):
            segment.memory.madvise(mmap.MADV_DONTNEED, view.start, size)
        # only now: until here its range cannot be opened again
        segment.views.pop(id(view), None)
        # a destructor must not wait; the next array over them finds copies that are left
        if segment.copies and self.lock.acquire(blocking=False):
            segment.drop_copies()
            self.lock.release()
        if view.leased:
            self._on_release(view.leased)

    def detach(self, blocks: Iterable[Block]) -> None:
        """Let the owner reuse these blocks.

        Arrays that still read them get private pages with the same content.
        """
        for block in blocks:
            segment = self._segments.get((block.owner, block.segment))
            # if there is none, its owner has dropped it and will not write there any more
            for view in list(segment.views.values()) if segment else ():
                if view.block == block:
                    _detach(view)

    def detach_all(self) -> None:
        """Let the owners reuse all blocks, and keep copies where arrays read them.

        Raises MemoryError if the kernel has no room for copies.
        """
        with self.lock:
            for view in self._views():
                _detach(view)

    def locate(self, data: memoryview) -> tuple[Reference, bool, Block] | None:
        """Return a reference to these bytes, whether their block is leased, and that; or None.

        It is None if the bytes are not in an open block, are not as the owner has written them, or
        may still be changed by a client or by a user's code.
        """
        pagemap, size = self._pagemap, data.nbytes
        if pagemap is None or data.readonly or not self._segments:
            return None
        # as address_of() does, without another call for each response
        address = ctypes.addressof(ctypes.c_char.from_buffer(data))
        with self.lock:
            for (_, number), segment in self._segments.items():
                start = address - segment.address
                if number < USERS_FROM and 0 <= start < segment.size:
                    for view in list(segment.views.values()):
                        if view.start <= start and start + size <= view.end and not view.is_own:
                            if not pagemap.is_unwritten(address, size):
                                return None
                            reference = Reference(*view.block, start, size)
                            return reference, bool(view.leased), view.block
        return None


def _repeats(references: Sequence[Reference], number: int) -> bool:
    """Return whether a reference has bytes in common with one before it."""
    reference = references[number]
    start, end = reference.offset, reference.offset + reference.size
    return any(
        other[:3] == reference[:3] and other.offset < end and start < other.offset + other.size
        for other in references[:number]
    )


def _private(descriptor: int, size: int) -> mmap.mmap:
    return mmap.mmap(descriptor, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)


def check_inside(reference: Reference, segment_size: int | None) -> None:
    """Raise ProtocolError if a reference is not inside its segment; None means no segment."""
    if segment_size is None:
        raise ProtocolError(f"a tensor in the unknown segment {reference[:2]}")
    if min(reference[:5]) < 0 or reference.offset + reference.size > segment_size:
        raise ProtocolError("a tensor that is not inside of its segment")


def too_small(output: str, room: int, size: int) -> InternalError:
    """Return the error for an output that is larger than its place in a client's region."""
    return InternalError(
        f"shared memory size specified with the request for output '{output}' ({room} bytes) "
        f"should be at least {size} bytes to hold the results"
    )


def _read(descriptor: int, start: int, end: int) -> Any:
    """Return a copy of the bytes that the file has from `start` to `end`."""
    import numpy as np

    array: Any = np.empty(end - start, np.uint8)
    rest = memoryview(array)
    while rest:
        got = os.preadv(descriptor, [rest], start)
        if not got:
            raise ProtocolError("a tensor that is not in its segment any more")
        rest, start = rest[got:], start + got
    return array


def _detach(view: _View) -> None:
    array = view()
    if array is not None and not view.is_own:
        view.is_own = True
        _make_own(view, array)


def _make_own(view: _View, array: Any) -> None:
    """Make all pages of a view private copies, although other threads may write to them."""
    # with numpy, which is loaded where an array is
    from zmqtriton_floor.tensors import address_of as address_of_array

    address, size = address_of_array(array), view.end - view.start
    is_read_only = not view.segment.address
    if is_read_only:
        _protect(address, size, mmap.PROT_READ | mmap.PROT_WRITE)
    try:
        view.segment.memory.madvise(MADV_POPULATE_WRITE, view.start, size)
    except OSError:  # an older kernel: any write to a page does it
        pages = (ctypes.c_char * size).from_address(address)
        for start in range(0, size, PAGE):
            pages[start] = pages[start]
    if is_read_only:
        _protect(address, size, mmap.PROT_READ)
        view.segment.copies.add((view.start, view.end))


def _protect(address: int, size: int, protection: int) -> None:
    if _mprotect(address, size, protection):
        raise MemoryError(
            "no room for a copy of a tensor, send the request again: "
            f"{os.strerror(ctypes.get_errno())}"
        )


#: The mappings of this process.
_of_process: weakref.WeakSet[Mappings] = weakref.WeakSet()
#: The mappings that the thread which forks has locked.
_forking = threading.local()


def _prepare_fork() -> None:
    """Before a fork, make pages private that owners may write to, and block further openings."""
    _forking.locked = [one for one in _of_process if one.lock.acquire(timeout=_PATIENCE_S)]
    for mappings in _forking.locked:
        mappings.detach_all()


def _go_on() -> None:
    for mappings in _forking.locked:
        mappings.lock.release()
    _forking.locked = []


os.register_at_fork(before=_prepare_fork, after_in_parent=_go_on, after_in_child=_go_on)
