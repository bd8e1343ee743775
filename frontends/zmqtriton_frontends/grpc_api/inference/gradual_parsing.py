"""Reads a large inference request in parts, and its raw tensors without a copy.

protobuf copies raw tensors twice on the way to Python, which for megabytes is most of the work; it
occupies the loop while it reads a message, which may be seconds, and needs a hundred bytes of
memory for two. Here other clients have their turns between two parts; typed contents become a
tensor's bytes as they are read, once there is room for these. The result is as if the client had
sent raw tensors.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_frontends.grpc_api.call import NoRequestRoomError, RpcCall
from zmqtriton_frontends.grpc_api.inference.convert import malformed, read_contents, supplied_twice
from zmqtriton_frontends.grpc_api.inference.response import varint
from zmqtriton_frontends.inference.layouts import MAX_LAYOUT_BYTES
from zmqtriton_frontends.process.ledger import Share
from zmqtriton_protos import message

#: Size in bytes at which a message is read in parts; a smaller one is read at once, in some
#: milliseconds at most.
LARGE_BYTES = 64 << 10
#: Size of a part in bytes.
PART_BYTES = 16 << 10
#: Seconds of reading after which the turn of the client ends, with the next part.
_TURN_S = 0.003
#: Fields that a request may have, besides those of contents: there may be 1,024 tensors.
MAX_FIELDS = 64 << 10
#: Fields that a group may have, which is read in one turn. No client of proto3 sends groups.
MAX_GROUP_FIELDS = 4 << 10

_REQUEST = message("inference.ModelInferRequest")
_VARINT, _FIXED64, _BYTES, _GROUP, _GROUP_END, _FIXED32 = range(6)
_SIZES = {_FIXED32: 4, _FIXED64: 8}
#: Tags: of an input of the request, and of the contents of an input.
_INPUT, _CONTENTS = 5 << 3 | _BYTES, 5 << 3 | _BYTES
#: Contents that may be cut between two elements, by their tags: the sizes of these, 0 if they vary.
_ELEMENTS = {n << 3 | _BYTES: 0 for n in range(1, 6)} | {6 << 3 | _BYTES: 4, 7 << 3 | _BYTES: 8}

Data = bytes | bytearray | memoryview
#: Size in bytes at which raw tensors are split off; below it protobuf is faster.
MIN_BYTES = 16 * 1024
#: Top-level fields that a request may have to be split; with more it is left to protobuf, which is
#: fast at those.
_MAX_FIELDS = 256

#: ModelInferRequest.raw_input_contents: field 7, length and bytes.
_RAW = 7 << 3 | 2
#: Largest tag of one byte, as those of the first fields are.
_ONE_BYTE = 127


def split_raw(data: bytes) -> tuple[bytes, list[memoryview]] | None:
    """Split off raw_input_contents; None if protobuf must parse the whole message."""
    view, end = memoryview(data), len(data)
    rest: list[memoryview] = []
    raw: list[memoryview] = []
    position = 0
    for _ in range(_MAX_FIELDS):
        if position == end:
            return b"".join(rest), raw
        start = position
        tag, position = data[position], position + 1
        if tag > _ONE_BYTE:
            tag, position = varint_at(data, start)
        kind = tag & 7
        if kind == _BYTES:
            size, position = varint_at(data, position)
            position += size
            if tag == _RAW and position <= end:
                raw.append(view[position - size : position])
                continue
        elif kind == _VARINT:
            _, position = varint_at(data, position)
        elif kind in _SIZES:
            position += _SIZES[kind]
        else:
            return None
        if position > end:
            return None
        rest.append(view[start:position])
    return None


def before_raw(data: Data, raw: Sequence[Any]) -> list[bytes]:
    """Return the bytes before each raw tensor of a message that these end; no bytes for others."""
    gaps = [bytes((_RAW,)) + varint(len(each)) for each in raw]
    size = at = len(data) - sum(map(len, gaps)) - sum(map(len, raw))
    for gap, each in zip(gaps, raw, strict=True):
        if size > MAX_LAYOUT_BYTES or data[at : at + len(gap)] != gap:
            return []
        at += len(gap) + len(each)
    gaps[0] = bytes(data[:size]) + gaps[0]
    try:  # a message of its own, which no part of these bytes belongs to
        beginning = _REQUEST.FromString(gaps[0][:size])
    except DecodeError:
        return []
    return [] if beginning.raw_input_contents else gaps


def tensors_at(beginning: Data) -> int:
    """Return the position of the first raw tensor; 0 if the beginning does not show it."""
    position, end = 0, len(beginning)
    for _ in range(_MAX_FIELDS):
        if position >= end:
            break
        tag, inner, position = _extent_of(beginning, position)
        if tag == _RAW:
            return inner
    return 0


def _extent_of(data: Data, at: int) -> tuple[int, int, int]:
    """Return the tag of a field, and the positions where its content begins and ends.

    The end is beyond the data if the data lack it, or if the field is a group.
    """
    is_short = at < len(data) and data[at] <= _ONE_BYTE
    tag, inner = (data[at], at + 1) if is_short else varint_at(data, at)
    kind = tag & 7
    if kind == _BYTES:
        size, inner = varint_at(data, inner)
        return tag, inner, inner + size
    if kind == _VARINT:
        return tag, inner, varint_at(data, inner)[1]
    return tag, inner, inner + _SIZES[kind] if kind in _SIZES else len(data) + 1


def varint_at(data: Data, position: int) -> tuple[int, int]:
    """Return the integer and the position behind it; beyond the end if it is incomplete."""
    value = shift = 0
    for byte in data[position : position + 10]:
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
    return value, len(data) + 1


@dataclass(slots=True, eq=False)
class ParsedRequest:
    """A request and its raw tensors; its length is the message's."""

    request: Any
    raw: list[Any]
    _size: int
    _room: Share
    _taken: int

    def __len__(self) -> int:
        return self._size

    def release(self) -> None:
        """Release the room of its tensors, once they are stored elsewhere.

        Otherwise the call releases the room at its end.
        """
        self._room.add(-self._taken)
        self._taken = 0


class LargeMessage(Exception):
    """Raised for a message that must be parsed in steps."""

    def __init__(self, rest: Data, raw: list[memoryview]) -> None:
        """Set up with a message without its raw tensors, and with these tensors."""
        super().__init__("this request takes long to read")
        self._rest = rest
        self._raw = raw

    async def read(self, call: RpcCall) -> ParsedRequest:
        """Read the message in the client's turns. Raises InvalidArgument and NoRequestRoomError."""
        reading = _Reading(self._rest, call)
        try:
            await reading.read()
            raw = self._raw or list(reading.request.raw_input_contents)
            raw = reading.take_contents(raw)
        except BaseException:
            call.requests.add(-reading.taken)
            reading.large.clear()
            raise
        size = len(self._rest) + sum(map(len, self._raw))
        return ParsedRequest(reading.request, raw, size, call.requests, reading.taken)


class GradualReader:
    """Merges a large message in parts, between which other clients have their turns."""

    def __init__(self, data: Data, call: RpcCall, kind: Any, name: str, max_fields: int) -> None:
        """Set up; errors name the message by its kind, and by `name` if it has too many fields."""
        self._data = memoryview(data)
        self._call = call
        self._kind = kind
        self._name = name
        self._fields_left = self._max_fields = max_fields
        self._begun = time.monotonic()

    async def merge(
        self, into: Any, at: int, end: int, is_apart: Callable[[int, int, int, int], bool]
    ) -> AsyncGenerator[tuple[int, int], None]:
        """Merge the fields between two positions, but return the content of those that are apart.

        `is_apart` gets a field: its position, its tag, and where its content begins and ends. What
        is before a field that is apart was merged.
        """
        start = at
        while at < end:
            self._fields_left -= 1
            if self._fields_left < 0:
                raise InvalidArgument(f"{self._name} has at most {self._max_fields} fields")
            tag, inner, after = field_at(self._data, at, end, self._kind)
            if is_apart(at, tag, inner, after):
                merge(into, self._data, start, at)
                yield inner, after
                start = after
            elif after - start >= PART_BYTES:
                merge(into, self._data, start, after)
                start = after
                await self._let_others()
            at = after
        merge(into, self._data, start, end)

    async def _let_others(self) -> None:
        if time.monotonic() - self._begun > _TURN_S:
            await self._call.turn(self._begun)
            self._begun = time.monotonic()


class _Reading(GradualReader):
    def __init__(self, data: Data, call: RpcCall) -> None:
        super().__init__(data, call, _REQUEST, "a request", MAX_FIELDS)
        self.request = _REQUEST()
        #: The bytes of inputs with many contents, by their places.
        self.large: dict[int, bytearray] = {}
        #: Bytes of room that they have taken.
        self.taken = 0

    async def read(self) -> None:
        inputs = self.merge(self.request, 0, len(self._data), _is_large_input)
        async with aclosing(inputs):
            async for start, end in inputs:
                await self._read_input(self.request.inputs.add(), start, end)

    async def _read_input(self, tensor: Any, start: int, end: int) -> None:
        contents = [part async for part in self.merge(tensor, start, end, _is_contents)]
        if contents and tensor.parameters:
            tensor.contents.SetInParent()  # they are refused, or do not matter
        elif contents:
            self.large[len(self.request.inputs) - 1] = encoded = bytearray()
            await self._read_contents(tensor, contents, encoded)

    async def _read_contents(
        self, tensor: Any, contents: list[tuple[int, int]], encoded: bytearray
    ) -> None:
        """Add the bytes of typed contents."""
        model = self.request.model_name
        part = _REQUEST.InferInputTensor(name=tensor.name, datatype=tensor.datatype)
        kind = ""
        for start, end in contents:
            for piece in self._pieces(start, end):
                _parse(part.contents, piece)
                for field, _ in part.contents.ListFields():
                    if kind not in ("", field.name):
                        raise supplied_twice(tensor, model)
                    kind = field.name
                data = read_contents(part, model)
                part.ClearField("contents")
                if not self._call.requests.take(len(data)):
                    raise NoRequestRoomError
                self.taken += len(data)
                encoded += data
                await self._let_others()

    def take_contents(self, raw: list[Any]) -> list[Any]:
        """Return all tensors as raw ones; those with typed contents are converted."""
        tensors: list[Any] = []
        for place, tensor in enumerate(self.request.inputs):
            if place in self.large:
                if raw:
                    tensor.contents.SetInParent()  # what is given twice is refused
                else:
                    tensors.append(self.large[place])
            elif not raw and self.large and tensor.HasField("contents") and not tensor.parameters:
                tensors.append(read_contents(tensor, self.request.model_name))
                tensor.ClearField("contents")
        return raw or tensors

    # ------------------------------------------------------------------- parts

    def _pieces(self, start: int, end: int) -> Iterator[bytes]:
        """Iterate over parts of contents; each part is a valid message of contents."""
        data, at, run = self._data, start, start
        while at < end:
            tag, inner, after = field_at(data, at, end)
            if after - at > PART_BYTES and tag in _ELEMENTS:
                if run < at:
                    yield bytes(data[run:at])
                yield from self._cut(tag, inner, after)
                run = after
            elif after - run >= PART_BYTES:
                yield bytes(data[run:after])
                run = after
            at = after
        if run < end:
            yield bytes(data[run:end])

    def _cut(self, tag: int, start: int, end: int) -> Iterator[bytes]:
        """Cut a field with many elements into several fields."""
        data, size = self._data, _ELEMENTS[tag]
        while start < end:
            to = min(end, start + PART_BYTES)  # which is a multiple of 4 and of 8
            if not size:
                while to < end and data[to - 1] & 128:
                    to += 1
            yield bytes((tag,)) + varint(to - start) + data[start:to]
            start = to


def _is_large_input(at: int, tag: int, inner: int, end: int) -> bool:
    return tag == _INPUT and end - inner > PART_BYTES


def _is_contents(at: int, tag: int, inner: int, end: int) -> bool:
    return tag == _CONTENTS


def field_at(
    data: memoryview, at: int, end: int, kind_of_message: Any = _REQUEST
) -> tuple[int, int, int]:
    """Return the tag of a field, and the positions where its content begins and ends.

    Raises InvalidArgument if the field does not end before `end`.
    """
    tag, inner, after = _extent_of(data, at)
    if tag & 7 == _GROUP:
        after = _end_of_group(data, inner, end, kind_of_message)
    if after > end:
        raise malformed(kind_of_message)
    return tag, inner, after


def _end_of_group(data: memoryview, at: int, end: int, kind_of_message: Any) -> int:
    """Return the end of the group whose fields begin at this position, with the groups within it.

    Whether the numbers of begin and end tags match is left to protobuf.
    """
    depth = 1
    for _ in range(MAX_GROUP_FIELDS):
        tag, inner = varint_at(data, at)
        if tag & 7 in (_GROUP, _GROUP_END):
            depth += 1 if tag & 7 == _GROUP else -1
            at = inner
        else:
            _, _, at = field_at(data, at, end, kind_of_message)
        if depth == 0 or at >= end:
            return at if depth == 0 else end + 1
    raise InvalidArgument(f"a group has at most {MAX_GROUP_FIELDS} fields")


def merge(into: Any, data: memoryview, start: int, end: int) -> None:
    """Add the fields between two positions to a message. Raises InvalidArgument if malformed."""
    if start < end:
        _parse(into, bytes(data[start:end]))


def _parse(into: Any, data: bytes) -> None:
    try:
        into.MergeFromString(data)
    except DecodeError:
        raise malformed(into) from None
