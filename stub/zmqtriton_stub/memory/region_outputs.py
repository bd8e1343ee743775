"""Clients' regions that outputs are written to without another copy.

They are mapped shared and writable here, next to the private mappings for inputs, so models never
get arrays over them. Outputs that cannot be written here go with the response, and the frontend
writes them. GPU memory cannot be written elsewhere, so its faults are raised.
"""

from __future__ import annotations

import errno
import mmap
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, Sequence, Tuple

from zmqtriton_floor.arena import MADV_POPULATE_WRITE, PAGE, populate
from zmqtriton_floor.errors import Unavailable
from zmqtriton_floor.mappings import Mappings
from zmqtriton_floor.wire import Place, Tensor, make
from zmqtriton_stub.memory.gpu import DeviceSpan

if TYPE_CHECKING:
    from zmqtriton_stub.memory.gpu_memory import Borrowed

#: More ranges that have memory are forgotten, and populated again.
_MAX_RANGES = 256

#: A frontend, and the number under which it has lent the region.
_Name = Tuple[int, int]


class _Mapped:
    """A region that can be written to."""

    def __init__(self, descriptor: int) -> None:
        """Map the file. Raises OSError or ValueError if it cannot be written to."""
        self._memory = mmap.mmap(descriptor, os.fstat(descriptor).st_size, mmap.MAP_SHARED)
        self._descriptor = os.dup(descriptor)
        #: Ranges that have memory, so that writing there does not end in SIGBUS where that is full.
        self._ranges: set[tuple[int, int]] = set()

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)

    def write(self, place: Place, data: Any) -> bool:
        """Write the data; False if there is no room for them, or if they are on a GPU."""
        if type(data) is DeviceSpan or len(data) > place.size:
            return False
        start = place.offset
        end = start + len(data)
        # the mapping is as long as the file was, which its client may have truncated since
        if end > len(self._memory) or end > os.fstat(self._descriptor).st_size:
            return False
        if (start, end) not in self._ranges and not self._populate(start, end):
            return False
        self._memory[start:end] = data
        return True

    def _populate(self, start: int, end: int) -> bool:
        low = start // PAGE * PAGE
        try:
            self._memory.madvise(MADV_POPULATE_WRITE, low, end - low)
        except OSError as error:
            if error.errno != errno.EINVAL:
                return False
            try:  # an older kernel
                populate(self._descriptor, start, end - start)
            except OSError:
                return False
        if len(self._ranges) >= _MAX_RANGES:
            self._ranges.clear()
        self._ranges.add((start, end))
        return True


class RegionOutputs:
    """The regions that this process writes to."""

    def __init__(
        self,
        mappings: Mappings,
        open_segment: Callable[[int, int], None],
        on_gpu: Callable[[int, int], Borrowed | None],
    ) -> None:
        """Set up; `open_segment` opens a region, or raises Unavailable.

        `on_gpu` returns an open region on a GPU, else None.
        """
        self._mappings = mappings
        self._open_segment = open_segment
        self._on_gpu = on_gpu
        #: None for what cannot be mapped for writing.
        self._mapped: dict[_Name, _Mapped | Borrowed | None] = {}

    def store(self, places: Sequence[Place], rows: list[Tensor]) -> list[Tensor]:
        """Write outputs to their places; return the tensors, without data where they are written.

        The frontend that lent the region writes the remaining outputs.
        """
        by_output: dict[str, Place] = {}
        for place in places:  # a comprehension would be one call more
            by_output[place.output] = place
        stored = []
        for row in rows:
            name, datatype, shape, data = row
            target = by_output.get(name)
            if target is not None and self._write(target, data):
                row = make(Tensor, (name, datatype, shape, None))
            stored.append(row)
        return stored

    def forget(self, owner: int, segment: int) -> None:
        """Unmap a region once nothing is being written to it."""
        self._mapped.pop((owner, segment), None)

    def _write(self, place: Place, data: Any) -> bool:
        name = place.owner, place.segment
        mapped = self._mapped[name] if name in self._mapped else self._map(name)
        return mapped is not None and mapped.write(place, data)

    def _map(self, name: _Name) -> _Mapped | Borrowed | None:
        try:
            if not self._mappings.has(*name):
                self._open_segment(*name)
        except Unavailable:
            return None
        descriptor = self._mappings.descriptor(*name)
        mapped: _Mapped | Borrowed | None = None
        if descriptor < 0:
            mapped = self._on_gpu(*name)
        else:
            with suppress(OSError, ValueError):  # it may only be read, or is empty by now
                mapped = _Mapped(descriptor)
        self._mapped[name] = mapped
        return mapped
