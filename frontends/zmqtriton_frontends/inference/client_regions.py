"""Clients' shared memory in a frontend: lent to stubs where that is safe, else read and written.

The supervisor has opened and checked each region; the gateway adds and removes them by its
messages. Nothing here is mapped, so that a client that truncates its memory gets an error and
cannot crash the process. A stub maps a region that is lent to it: its inputs are read there, and
its outputs written there, without a copy in between. All else is read when there is a place for it,
and written when the answer has come. A region stays open as long as a request holds a claim on it.
Memory of a GPU is always lent: only the process of a model can read or write it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from zmqtriton_floor.arena import INLINE_BYTES, PAGE
from zmqtriton_floor.datatypes import BYTES
from zmqtriton_floor.errors import InternalError, InvalidArgument, NotFound
from zmqtriton_floor.mappings import REGIONS_FROM, too_small
from zmqtriton_floor.wire import (
    UNREAD_STRINGS,
    AddRegion,
    Place,
    Reference,
    RequestBody,
    ResponseBody,
    Tensor,
    make,
)
from zmqtriton_frontends.process.futures import Callbacks

#: Alignment of inputs that are lent, in bytes: the largest element, and what processors copy at a
#: time.
_ALIGNMENT = 64
#: Bytes of inputs in shared memory that one request may have; otherwise a small request could have
#: any amount of memory filled.
MAX_READ_BYTES = 2**31 - 1


class RegionSlice(NamedTuple):
    """The place of a tensor in a region, used as its data until they are read."""

    region: str
    offset: int
    size: int


#: Places of a request without outputs in shared memory.
NO_PLACES: Mapping[str, RegionSlice] = {}


@dataclass
class Region:
    number: int
    name: str
    descriptor: int
    offset: int
    size: int
    #: Stubs may map it.
    can_be_mapped: bool
    #: Closes it; called when it is leaving and the last claim on it has ended.
    close_unused: Callable[[Region], None]
    claims: int = 0
    is_leaving: bool = False
    #: Number of references to it that were made.
    lent: int = 0
    is_closed: bool = False
    is_on_gpu: ClassVar[bool] = False

    def position(self, place: RegionSlice) -> int:
        """Return a position in the file. Raises InvalidArgument for a place beyond the region."""
        if place.offset >= self.size if place.size else place.offset > self.size:
            raise InvalidArgument(f"Invalid offset for shared memory region: '{self.name}'")
        if place.size > self.size - place.offset:
            raise InvalidArgument(
                f"Invalid offset + byte size for shared memory region: '{self.name}'"
            )
        return self.offset + place.offset

    def give_back(self) -> None:
        """End a claim."""
        self.claims -= 1
        if self.is_leaving:
            self.close_unused(self)

    def check_end(self, end: int) -> None:
        """Raise InvalidArgument if the client has cut the file short before this position."""
        if end > os.fstat(self.descriptor).st_size:
            raise self._cut_short()

    def is_same_file(self, other: Region) -> bool:
        return other is self or os.path.sameopenfile(self.descriptor, other.descriptor)

    def read(self, position: int, view: memoryview) -> None:
        """Fill the view. Raises InvalidArgument if the file has fewer bytes."""
        try:
            while view:
                count = os.preadv(self.descriptor, [view], position)
                if not count:
                    raise self._cut_short()
                view, position = view[count:], position + count
        except OSError as error:
            raise InternalError(
                f"cannot read shared memory region '{self.name}', register it again: "
                f"{error.strerror}"
            ) from None

    def write(self, place: RegionSlice, data: Any) -> None:
        view = memoryview(data)
        position = self.position(place)
        # writing beyond its end would make the file larger again
        self.check_end(position + len(view))
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
        self.is_closed = True
        os.close(self.descriptor)

    def _cut_short(self) -> InvalidArgument:
        return InvalidArgument(
            f"shared memory region '{self.name}' is smaller than when it was registered"
        )


class RegionOnGpu(Region):
    """GPU memory, which has no file."""

    is_on_gpu = True

    def check_end(self, end: int) -> None:
        """Leave the check to the process that opens the memory and learns its true size."""

    def is_same_file(self, other: Region) -> bool:
        return other is self

    def read(self, position: int, view: memoryview) -> None:
        if view:
            raise InternalError(self._untouchable())

    def write(self, place: RegionSlice, data: Any) -> None:
        if len(data):
            raise InternalError(self._untouchable())

    def close(self) -> None:
        self.is_closed = True

    def _untouchable(self) -> str:
        return (
            f"shared memory region '{self.name}' lies on a GPU, where nobody but the model that "
            "reads an input or makes an output can reach it"
        )


class Regions:
    """The regions that the supervisor has announced, by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, Region] = {}
        self._by_number: dict[int, Region] = {}
        #: Called with the number of a removed region when the last claim on it ends.
        self.on_left = Callbacks()

    # ---------------------------------------------------------- called by the gateway

    def add(self, message: AddRegion, descriptor: int) -> None:
        """Add a region and take over its descriptor; one on a GPU has none."""
        number, name, offset, size, can_be_mapped, gpu = message
        place = number, name, descriptor, offset, size
        kind = Region if gpu < 0 else RegionOnGpu
        region = kind(*place, bool(can_be_mapped), self._close_unused)
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
        """Close all regions, even used ones."""
        for region in self._by_number.values():
            region.close()
        self._by_number.clear()
        self._by_name.clear()

    def _close_unused(self, region: Region) -> None:
        """Close a region that was removed, unless a request holds a claim on it."""
        if not region.claims and region.number in self._by_number:
            del self._by_number[region.number]
            region.close()
            self.on_left(region.number)

    # ----------------------------------------------------------------- for requests

    def fill(self, body: RequestBody) -> RequestBody:
        """Return the body with the data of inputs in regions, or RegionContents for large ones.

        Raises NotFound for an unknown region, InvalidArgument for a place beyond its region.
        """
        total = 0
        for tensor in body.inputs:  # a sum would call a generator for each
            if type(tensor.data) is RegionSlice:
                total += tensor.data.size
        if total > MAX_READ_BYTES:
            raise InvalidArgument(
                f"inputs in shared memory have {total} bytes, but can have at most {MAX_READ_BYTES}"
            )
        inputs = []
        for tensor in body.inputs:
            inputs.append(self._filled(tensor) if type(tensor.data) is RegionSlice else tensor)
        request_id, parameters, outputs, _, places = body
        return make(RequestBody, (request_id, parameters, outputs, inputs, places))

    def _filled(self, tensor: Tensor) -> Tensor:
        name, datatype, shape, place = tensor
        region = self._by_name.get(place.region)
        if region is None:
            raise _not_found(place.region)
        contents = RegionContents(region, region.position(place), place.size)
        # strings are looked into before they are sent
        is_later = place.size > INLINE_BYTES and datatype != BYTES
        is_later = is_later or (region.is_on_gpu and place.size > 0)
        return make(Tensor, (name, datatype, shape, contents if is_later else contents.read()))

    def claim(self, places: Mapping[str, RegionSlice]) -> Claim:
        """Claim the regions for outputs until this is closed. Raises the errors of `fill`."""
        targets = {}
        for output, place in places.items():
            region = self._by_name.get(place.region)
            if region is None:
                raise _not_found(place.region)
            region.position(place)
            targets[output] = (region, place)
        return Claim(targets)


def _not_found(name: str) -> NotFound:
    return NotFound(f"Unable to find shared memory region: '{name}'")


def flags_of_inputs(body: RequestBody) -> int:
    """Return UNREAD_STRINGS if the frontend cannot read some of these inputs, else 0."""
    for tensor in body.inputs:
        if type(tensor.data) is RegionContents and tensor.data.region.is_on_gpu:
            return UNREAD_STRINGS
    return 0


@dataclass(slots=True, eq=False)
class RegionContents:
    """Bytes of a region, not yet read; a tensor's data until they are.

    Used with `with`: the region stays open in the block.
    """

    region: Region
    _position: int
    _size: int
    #: Responses are written there while the model may still read the input.
    is_stored_over: bool = False

    def __len__(self) -> int:
        return self._size

    def lend(self, owner: int, before: Loan | None) -> Reference | None:
        """Lend the bytes to be mapped, with a claim on the region.

        None if this is not safe, or if the elements would be misaligned for numpy. A loan that
        begins on the page where the loan before ends shares its block, because pages are opened
        once for a block. Raises InvalidArgument if the client has truncated its memory.
        """
        region, position, size = self.region, self._position, self._size
        is_aligned = region.is_on_gpu or position % _ALIGNMENT == 0
        if self.is_stored_over or not (region.can_be_mapped and is_aligned):
            return None
        if region.is_closed:
            raise _not_found(region.name)
        region.check_end(position + size)
        region.claims += 1
        region.lent = block = region.lent + 1
        if before is not None and before[0] is region:
            lent = before[1]
            if type(lent) is Reference and lent.offset <= position < lent.offset + lent.size + PAGE:
                block = lent.block
        return make(Reference, (owner, REGIONS_FROM + region.number, block, position, size, b""))

    def read(self) -> bytearray:
        data = bytearray(self._size)
        self.read_into(memoryview(data))
        return data

    def read_into(self, view: memoryview, start: int = 0) -> None:
        """Read from a start into a view. Raises InvalidArgument for truncated memory."""
        self._check_open()
        self.region.read(self._position + start, view)

    def overlaps(self, region: Region, start: int, end: int) -> bool:
        """Return whether responses that are written to this part of a region change the input."""
        low = self._position
        return _have_same_bytes(region, start, end, self.region, low, low + self._size)

    def _check_open(self) -> None:
        if self.region.is_closed:
            raise _not_found(self.region.name)

    def __enter__(self) -> RegionContents:
        self._check_open()
        self.region.claims += 1
        return self

    def __exit__(self, *error: object) -> None:
        self.region.give_back()


#: A region that was lent, and what of it, for a request that holds a claim on it.
Loan = tuple[Region, Reference | Place]


class Claim:
    """A request's hold on the regions for its outputs, which stay open until it ends."""

    def __init__(self, places: dict[str, tuple[Region, RegionSlice]]) -> None:
        self._places = places
        #: The outputs that the stub writes itself, if it can.
        self._lent: set[str] = set()
        #: Files are lent, too: the stub writes to none after the answer.
        self.lends_files = True
        #: An output is written to a GPU, which only its stub can do.
        self.is_on_gpu = False
        for region, _ in places.values():
            region.claims += 1
            self.is_on_gpu = self.is_on_gpu or region.is_on_gpu

    def close(self) -> None:
        """End the claim; call this once."""
        for region, _ in self._places.values():
            region.give_back()

    def lend(self, owner: int, inputs: Iterable[Loan]) -> tuple[list[Loan], list[Place]]:
        """Lend the places of large outputs to a stub, each with another claim on its region.

        Returns the loans, and their places. Places that overlap a lent input are left out: the
        model may read the input while an output is written.
        """
        loans: list[Loan] = []
        places: list[Place] = []
        for output, (region, place) in self._places.items():
            is_large = place.size > INLINE_BYTES and self.lends_files
            if not (region.can_be_mapped and (is_large or region.is_on_gpu)):
                continue
            start = region.offset + place.offset
            row = make(Place, (output, owner, REGIONS_FROM + region.number, start, place.size))
            if not region.is_on_gpu and _overlaps(region, row, inputs):
                continue
            region.claims += 1
            self._lent.add(output)
            loans.append((region, row))
            places.append(row)
        return loans, places

    def keep_inputs(self, inputs: Iterable[Tensor]) -> None:
        """Read inputs before the request is sent, if responses of a stream are written over them.

        A stub that maps such an input would otherwise see the first response in it.
        """
        for tensor in inputs:
            data = tensor.data
            if type(data) is RegionContents:
                for region, place in self._places.values():
                    start = region.offset + place.offset
                    if data.overlaps(region, start, start + place.size):
                        data.is_stored_over = True

    def store(self, response: ResponseBody) -> ResponseBody:
        """Write the outputs to their places; the response keeps them without data.

        Raises InternalError if there is too little room.
        """
        outputs = []
        for tensor in response.outputs:
            if tensor.data is not None:
                outputs.append(self._store(tensor))
                continue
            name, datatype, shape, _ = tensor
            if name not in self._lent:
                raise InternalError(
                    f"the model has sent no data for output '{name}'; let it return the tensor"
                )
            outputs.append(make(Tensor, (name, datatype, shape, b"")))
        return make(ResponseBody, (response.parameters, outputs))

    def _store(self, tensor: Tensor) -> Tensor:
        name, datatype, shape, data = tensor
        target = self._places.get(name)
        if target is None:
            return tensor
        region, place = target
        size = len(data)
        if size > place.size:
            raise too_small(name, place.size, size)
        region.write(place, data)
        return Tensor(name, datatype, shape, b"")


def _overlaps(region: Region, place: Place, loans: Iterable[Loan]) -> bool:
    """True if a place shares bytes with one of the loans, also under other names of regions."""
    start, end = place.offset, place.offset + place.size
    for other, lent in loans:
        if _have_same_bytes(region, start, end, other, lent.offset, lent.offset + lent.size):
            return True
    return False


def _have_same_bytes(
    region: Region, start: int, end: int, other: Region, low: int, high: int
) -> bool:
    """True if two parts of files have bytes in common; always False for GPU memory."""
    is_apart = high <= start or end <= low
    return not (is_apart or other.is_on_gpu) and region.is_same_file(other)
