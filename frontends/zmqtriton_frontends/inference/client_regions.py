"""Clients' shared memory in a frontend: inputs are read from it, outputs are written into it.

Large inputs are read when there is a place for them, straight to where their stub maps them. The
supervisor has opened and checked each region; the gateway adds and removes them as it is told.
Nothing here is mapped, so that a client that truncates its memory gets an error and cannot crash
the process. A region stays open as long as a request holds a claim on it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from zmqtriton_floor import wire
from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.datatypes import BYTES
from zmqtriton_floor.errors import InternalError, InvalidArgument, NotFound
from zmqtriton_floor.mappings import REGIONS_FROM
from zmqtriton_floor.wire import Reference, RequestBody, ResponseBody, Tensor

#: The largest element, and what processors copy at a time.
_ALIGNMENT = 64
#: Otherwise a small request could have any amount of memory filled.
MAX_READ_BYTES = 2**31 - 1


@dataclass(frozen=True)
class RegionSlice:
    """The place of a tensor in a region, in its place until the data are read."""

    region: str
    offset: int
    size: int


#: For requests without outputs in shared memory.
NO_PLACES: Mapping[str, RegionSlice] = {}


@dataclass
class _Region:
    number: int
    name: str
    descriptor: int
    offset: int
    size: int
    claims: int = 0
    is_leaving: bool = False

    def position(self, place: RegionSlice) -> int:
        """Return a position within the file. Raises InvalidArgument for one beyond the region."""
        is_beyond = place.offset >= self.size if place.size else place.offset > self.size
        if is_beyond:
            raise InvalidArgument(f"Invalid offset for shared memory region: '{self.name}'")
        if place.size > self.size - place.offset:
            raise InvalidArgument(
                f"Invalid offset + byte size for shared memory region: '{self.name}'"
            )
        return self.offset + place.offset

    def read(self, position: int, view: memoryview) -> None:
        """Fill the view. Raises InvalidArgument if there is less than that."""
        while view:
            count = os.preadv(self.descriptor, [view], position)
            if not count:
                raise self._cut_short()
            view, position = view[count:], position + count

    def write(self, place: RegionSlice, data: Any) -> None:
        view = memoryview(data)
        position = self.position(place)
        # writing beyond its end would make the file larger again
        if position + len(view) > os.fstat(self.descriptor).st_size:
            raise self._cut_short()
        try:
            while view:
                written = os.pwrite(self.descriptor, view, position)
                view = view[written:]
                position += written
        except OSError as error:
            raise InternalError(
                f"cannot write to shared memory region '{self.name}': {error.strerror}"
            ) from None

    def close(self) -> None:
        os.close(self.descriptor)
        self.descriptor = -1

    def _cut_short(self) -> InvalidArgument:
        return InvalidArgument(
            f"shared memory region '{self.name}' is smaller than when it was registered"
        )


class Regions:
    """The regions that the supervisor has announced, by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, _Region] = {}
        self._by_number: dict[int, _Region] = {}
        #: Called with the number of a removed region when the last claim on it ends.
        self.on_left: Callable[[int], None] = lambda number: None

    # ---------------------------------------------------------- told by the gateway

    def add(self, message: wire.AddRegion, descriptor: int) -> None:
        """Add a region and take over its descriptor."""
        number, name, offset, size = message
        region = _Region(number, name, descriptor, offset, size)
        self._by_number[number] = self._by_name[name] = region

    def remove(self, number: int) -> None:
        region = self._by_number.get(number)
        if region is None:
            self.on_left(number)
            return
        if self._by_name.get(region.name) is region:
            del self._by_name[region.name]
        region.is_leaving = True
        self._close_unused(region)

    def close(self) -> None:
        """Close all regions, in use or not."""
        for region in self._by_number.values():
            region.close()
        self._by_number.clear()
        self._by_name.clear()

    def _close_unused(self, region: _Region) -> None:
        """Close a region that is leaving, unless a request holds a claim on it."""
        if not region.claims and region.number in self._by_number:
            del self._by_number[region.number]
            region.close()
            self.on_left(region.number)

    # ----------------------------------------------------------------- for requests

    def fill(self, body: RequestBody) -> RequestBody:
        """Return the body with the data of inputs in regions, or RegionContents for large ones.

        Raises NotFound for an unknown region, InvalidArgument for what is not within it.
        """
        total = 0
        for tensor in body.inputs:
            if type(tensor.data) is RegionSlice:
                total += tensor.data.size
        if total > MAX_READ_BYTES:
            raise InvalidArgument(
                f"inputs in shared memory of {total} bytes exceed the maximum of {MAX_READ_BYTES}"
            )
        inputs = []
        for tensor in body.inputs:
            is_filled = type(tensor.data) is not RegionSlice
            inputs.append(tensor if is_filled else self._filled(tensor))
        return RequestBody(body.request_id, body.parameters, body.outputs, inputs)

    def _filled(self, tensor: Tensor) -> Tensor:
        name, datatype, shape, place = tensor
        region = self._find(place.region)
        contents = RegionContents(region, region.position(place), place.size, self._close_unused)
        # strings are looked into before they are sent
        is_later = place.size > INLINE_BYTES and datatype != BYTES
        return Tensor(name, datatype, shape, contents if is_later else contents.read())

    def claim(self, places: Mapping[str, RegionSlice]) -> Claim:
        """Hold what outputs will be written to. Raises as `fill` does. To be used with `with`."""
        targets = {}
        for output, place in places.items():
            region = self._find(place.region)
            region.position(place)
            targets[output] = (region, place)
        return Claim(targets, self._close_unused)

    def _find(self, name: str) -> _Region:
        region = self._by_name.get(name)
        if region is None:
            raise _not_found(name)
        return region


def _not_found(name: str) -> NotFound:
    return NotFound(f"Unable to find shared memory region: '{name}'")


class RegionContents:
    """Bytes of a region that are still to be read; a tensor's data until then.

    To be used with `with`: meanwhile the region stays.
    """

    def __init__(
        self, region: _Region, position: int, size: int, released: Callable[[_Region], None]
    ) -> None:
        self._region = region
        self._position = position
        self._size = size
        self._released = released

    def __len__(self) -> int:
        return self._size

    def lent(self, owner: int, block: int) -> Reference | None:
        """Lend the bytes to be mapped; None if numpy would see elements across words."""
        segment = REGIONS_FROM + self._region.number
        is_aligned = self._position % _ALIGNMENT == 0
        return Reference(owner, segment, block, self._position, self._size) if is_aligned else None

    def read(self) -> bytearray:
        data = bytearray(self._size)
        self.read_into(memoryview(data))
        return data

    def read_into(self, view: memoryview) -> None:
        """Read into a view. Raises InvalidArgument if the client has truncated its memory."""
        self._region.read(self._position, view)

    def __enter__(self) -> RegionContents:
        if self._region.descriptor < 0:
            raise _not_found(self._region.name)
        self._region.claims += 1
        return self

    def __exit__(self, *error: object) -> None:
        self._region.claims -= 1
        if self._region.is_leaving:
            self._released(self._region)


class Claim:
    """Regions that one request writes its outputs to."""

    def __init__(
        self, places: dict[str, tuple[_Region, RegionSlice]], released: Callable[[_Region], None]
    ) -> None:
        self._places = places
        self._released = released
        for region, _ in places.values():
            region.claims += 1

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *error: object) -> None:
        self.give_back()

    def give_back(self) -> None:
        """End the claim; to be called once, where this is not used with `with`."""
        for region, _ in self._places.values():
            region.claims -= 1
            if region.is_leaving:
                self._released(region)

    def store(self, response: ResponseBody) -> ResponseBody:
        """Write the outputs to their places; the response keeps them without data.

        Raises InternalError if there is too little room.
        """
        outputs = []
        for tensor in response.outputs:
            outputs.append(self._store(tensor))
        return ResponseBody(response.parameters, outputs)

    def _store(self, tensor: Tensor) -> Tensor:
        name, datatype, shape, data = tensor
        target = self._places.get(name)
        if target is None:
            return tensor
        region, place = target
        size = len(data)
        if size > place.size:
            raise InternalError(
                f"shared memory size specified with the request for output '{name}' "
                f"({place.size} bytes) should be at least {size} bytes to hold the results"
            )
        region.write(place, data)
        return Tensor(name, datatype, shape, b"")
