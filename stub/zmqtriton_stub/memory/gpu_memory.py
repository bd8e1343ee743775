"""The memory of tensors on GPUs between stubs: this process's arena there, and that of others.

Made by tensor_memory.py when the first such tensor comes or goes. Sent tensors are copied into the
arena once, within the GPU; arriving tensors are read in place, through a handle from the supervisor
that is opened once. Each block has one reader, so no other process sees what the reader writes
there. The memory of a client is no block: its tensors are read and written in place.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import Any, Callable, Iterable, Sequence, Tuple

from zmqtriton_floor.arena import Arena, block_of
from zmqtriton_floor.datatypes import BY_NUMBER, BYTES
from zmqtriton_floor.errors import InvalidArgument, Unavailable, Unsupported
from zmqtriton_floor.mappings import REGIONS_FROM, check_inside, too_small
from zmqtriton_floor.wire import Block, CreateSegment, Place, Reference, Tensor
from zmqtriton_stub.memory import gpu

#: CUDA cuts smaller allocations out of such pieces, and other processes can only open a whole
#: piece.
_GRAIN = 2 << 20
#: The share of a GPU's memory that may become one process's arena.
_SHARE = 1 / 4
#: Other threads may take what was just made.
_TRIES = 8

_Name = Tuple[int, int]
#: Registers a segment at the supervisor; returns why that failed, or "".
Register = Callable[[CreateSegment], str]


class _Segment:
    """An opened handle of another process."""

    def __init__(self, handle: bytes, size: int) -> None:
        self._driver = gpu.driver()
        self.gpu, self.address, true_size = self._driver.open(handle)
        #: what the owner says counts as far as it is true
        self.size = min(size, true_size)
        #: Views of it that are read here. The last one closes the memory if the owner is gone.
        self.views: set[_View] = set()
        self.is_dropped = False

    def close_if_unread(self) -> None:
        if self.is_dropped and not self.views:
            with contextlib.suppress(Unavailable):  # on a GPU that has failed, everything is gone
                self._driver.close(self.gpu, self.address)

    def settle(self) -> None:
        with contextlib.suppress(Unavailable):  # on a GPU that has failed, nothing runs
            self._driver.settle(self.gpu)


class _View:
    """A block that tensors of this process read."""

    def __init__(self, segment: _Segment, block: Block, is_leased: bool) -> None:
        self.segment = segment
        self.block = block
        self.is_leased = is_leased
        segment.views.add(self)


class Borrowed:
    """GPU memory of other processes. Thread-safe; tensors may end in any thread."""

    def __init__(self, on_release: Callable[[list[Block]], None]) -> None:
        """Create an empty set; `on_release` gets leased blocks that are no longer read.

        It must not wait.
        """
        self._on_release = on_release
        self._segments: dict[_Name, _Segment] = {}
        # Reentrant: a destructor may run in the middle of anything here.
        self._lock = threading.RLock()

    def add(self, owner: int, segment: int, handle: bytes, size: int) -> None:
        """Open a segment. Raises Unavailable if it cannot be opened."""
        with self._lock:
            if (owner, segment) not in self._segments:
                self._segments[owner, segment] = _Segment(handle, size)

    def add_region(self, owner: int, segment: int, handle: bytes, size: int) -> None:
        """Open a client's memory. Raises InvalidArgument if it is missing or too small.

        Raises Unsupported without a driver.
        """
        try:
            gpu.driver()
        except Unavailable as error:
            raise Unsupported(error.text) from None
        with self._lock:
            try:
                self.add(owner, segment, handle, size)
            except Unavailable as error:
                raise InvalidArgument(f"failed to open CUDA IPC handle: {error.text}") from None
            true_size = self._segments[owner, segment].size
            if true_size < size:
                self.remove(owner, segment)
                raise InvalidArgument(
                    f"a CUDA shared memory region has {true_size} bytes: register it with these, "
                    f"not with {size}"
                )

    def has(self, owner: int, segment: int) -> bool:
        return (owner, segment) in self._segments

    def remove(self, owner: int, segment: int) -> None:
        """Drop the segments of a dead owner; a segment stays as long as it is read."""
        with self._lock:
            mapping = self._segments.pop((owner, segment), None)
            if mapping is not None:
                mapping.is_dropped = True
                mapping.close_if_unread()

    def open(self, references: Sequence[Reference], *, is_leased: bool) -> list[gpu.DeviceSpan]:
        """Return the GPU memory of each reference.

        Raises ProtocolError, with nothing opened, if one of them is not inside its segment.
        """
        with self._lock:
            for reference in references:
                segment = self._segments.get((reference.owner, reference.segment))
                check_inside(reference, None if segment is None else segment.size)
            return [self._open(reference, is_leased) for reference in references]

    def _open(self, reference: Reference, is_leased: bool) -> gpu.DeviceSpan:
        segment = self._segments[reference.owner, reference.segment]
        view = _View(segment, block_of(reference), is_leased)
        span = gpu.DeviceSpan(segment.gpu, segment.address + reference.offset, reference.size)
        weakref.finalize(span, self._end, view).atexit = False
        return span

    def write(self, place: Place, data: Any) -> bool:
        """Write an output to its place in a client's memory, from a GPU or any buffer.

        The output is complete on return. Raises InternalError if the place is too small,
        ProtocolError if it no longer exists, Unavailable if the GPU fails.
        """
        size = len(data)
        if size > place.size:
            raise too_small(place.output, place.size, size)
        if not size:
            return True
        reference = Reference(place.owner, place.segment, 0, place.offset, size)
        with self._lock:
            segment = self._segments.get((reference.owner, reference.segment))
            check_inside(reference, None if segment is None else segment.size)
            assert segment is not None
            view = _View(segment, block_of(reference), is_leased=False)
        driver, address = gpu.driver(), segment.address + reference.offset
        try:
            if type(data) is gpu.DeviceSpan:
                driver.copy(segment.gpu, address, data)
            else:
                driver.from_host(segment.gpu, address, data)
        finally:
            with self._lock:
                segment.views.discard(view)
                segment.close_if_unread()
        return True

    def _end(self, view: _View) -> None:
        """End a view that no tensor uses any more.

        Waits for kernels that may still read it.
        """
        segment = view.segment
        segment.settle()
        with self._lock:
            segment.views.discard(view)
            segment.close_if_unread()
        if view.is_leased:
            self._on_release([view.block])

    def leave(self, blocks: Iterable[Block]) -> list[Block]:
        """Let the owners reuse these blocks, except blocks that are still read here.

        Returns the latter, which must be leased before. The memory of a client is the client's
        again.
        """
        free = {block for block in blocks if block.segment < REGIONS_FROM}
        leased = []
        with self._lock:
            for view in self._views():
                if view.block in free and not view.is_leased:
                    view.is_leased = True
                    leased.append(view.block)
        return leased

    def leased(self) -> list[Block]:
        with self._lock:
            return [view.block for view in self._views() if view.is_leased]

    def _views(self) -> list[_View]:
        return [v for s in self._segments.values() for v in list(s.views)]


class OnGpus:
    """GPU memory in both directions, for tensor_memory.py. Thread-safe."""

    def __init__(
        self, arena: Arena, register: Register, on_release: Callable[[list[Block]], None]
    ) -> None:
        self._arena = arena
        self._register = register
        self.borrowed = Borrowed(on_release)

    def place(self, span: gpu.DeviceSpan) -> tuple[Reference, list[Block]]:
        """Return a copy of a span, with one lease. Raises Unavailable if memory is short."""
        for _ in range(_TRIES):
            allocation = self._arena.allocate(span.size, span.gpu)
            if allocation is not None:
                break
            self._grow(span.gpu, span.size)
        else:
            raise Unavailable("Failed to allocate memory on a GPU. Lower max_batch_size or count.")
        try:
            gpu.driver().copy(span.gpu, allocation.view, span)
        except BaseException:
            self._arena.leases.end([allocation.block.block])
            raise
        return allocation.reference, [allocation.block]

    def _grow(self, number: int, size: int) -> None:
        arena, driver = self._arena, gpu.driver()
        request = arena.segment_request(size, number)
        request = request._replace(size=-(-request.size // _GRAIN) * _GRAIN)
        if arena.bytes_on(number) + request.size > driver.room(number) * _SHARE:
            raise arena.refuse(request, f"That is more than one process may have on GPU {number}.")
        address = -1
        try:
            address = driver.allocate(number, request.size)
            request = request._replace(handle=driver.export(number, address))
            refusal = self._register(request)
            if refusal:
                raise Unavailable(refusal)
        except Unavailable as error:
            if address >= 0:
                driver.free(number, address)
            raise arena.refuse(request, error.text) from None
        arena.hold(request, address, number)

    def writable(self, owner: int, segment: int) -> Borrowed | None:
        """Return the writer of a client's open memory; None for another segment."""
        return self.borrowed if self.borrowed.has(owner, segment) else None

    def open(self, rows: list[Tensor], *, is_leased: bool, takes_gpu: bool) -> list[Tensor]:
        """Return the tensors; those on a GPU have spans as data.

        If the model does not take GPU tensors, they are copied to the CPU.
        """
        borrowed = self.borrowed
        places = [i for i, row in enumerate(rows) if _is_on(borrowed, row)]
        if not places:
            return rows
        opened = list(rows)
        spans = borrowed.open([rows[i].data for i in places], is_leased=is_leased)
        for i, span in zip(places, spans):
            row = rows[i]
            opened[i] = row._replace(data=_for_model(row.datatype, span, takes_gpu))
        return opened


def _for_model(datatype: int, span: gpu.DeviceSpan, takes_gpu: bool) -> Any:
    """Return the data of a tensor where its model can read them."""
    if not takes_gpu or datatype == BYTES:
        return gpu.downloaded(span)
    # a client may have put it anywhere, and kernels read whole elements
    return span if span.address % BY_NUMBER[datatype].size == 0 else gpu.copied(span, span.gpu)


def _is_on(borrowed: Borrowed, row: Tensor) -> bool:
    data = row.data
    return type(data) is Reference and borrowed.has(data.owner, data.segment)
