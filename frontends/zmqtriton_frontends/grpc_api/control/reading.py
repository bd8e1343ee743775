"""Reads the messages of control RPCs, without occupying the loop for long.

All messages but loads are small; a load may bring files, which stay where they are in the message.
"""

from __future__ import annotations

import time
from typing import Any

from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.staging import PREFIX
from zmqtriton_frontends.gateway.loads import MAX_CONFIG_BYTES
from zmqtriton_frontends.grpc_api.call import RpcCall
from zmqtriton_frontends.grpc_api.inference.convert import parse
from zmqtriton_frontends.grpc_api.inference.gradual_parsing import field_at, merge
from zmqtriton_protos import message

#: Largest message that brings no files, in bytes; to read it takes two milliseconds at most.
MAX_BYTES = 64 << 10
#: Fields that a load may have, files included; of files there may be half as many.
MAX_FIELDS = 8192
#: Bytes that are read at once, and seconds of that before other clients have their turn.
_PART_BYTES, _TURN_S = 16 << 10, 0.003

_LOAD = message("inference.RepositoryModelLoadRequest")
#: Tags: of a parameter of a load; of its key and its value; of the bytes in the latter.
_PARAMETER, _KEY, _VALUE, _CONTENT = (number << 3 | 2 for number in (3, 1, 2, 4))

_Data = bytes | bytearray | memoryview


def read(kind: type[Any], data: _Data) -> Any:
    """Return the message. Raises InvalidArgument if it is malformed or too large."""
    if len(data) > MAX_BYTES:
        name = kind.DESCRIPTOR.full_name
        raise InvalidArgument(f"an {name} has at most {MAX_BYTES} bytes, not {len(data)}")
    return parse(kind, data)  # type: ignore[arg-type]  # any buffer will do


async def read_load(data: _Data, call: RpcCall) -> tuple[Any, dict[str, memoryview]]:
    """Return a load without its large files, and the files by their names, as views.

    Raises InvalidArgument if the rest is malformed or too large.
    """
    if len(data) <= MAX_BYTES:
        return read(_LOAD, data), {}
    request, files, view = _LOAD(), dict[str, memoryview](), memoryview(data)
    at = start = fields = 0
    begun, size = time.monotonic(), len(view)
    while at < size:
        fields += 1
        if fields > MAX_FIELDS:
            raise InvalidArgument(f"a load has at most {MAX_FIELDS} fields")
        tag, inner, end = field_at(view, at, size, _LOAD)
        if end - at > _PART_BYTES:
            merge(request, view, start, at)
            file = _file_at(view, inner, end) if tag == _PARAMETER else None
            if file is not None:
                files[file[0]] = file[1]
            elif end - at > MAX_CONFIG_BYTES:
                text = f"of {end - at} bytes exceeds the limit of {MAX_CONFIG_BYTES}"
                raise InvalidArgument(f"a parameter of a load that is no file {text}")
            start = at if file is None else end
        if end - start >= _PART_BYTES:
            merge(request, view, start, end)
            start = end
            if time.monotonic() - begun > _TURN_S:
                await call.turn(begun)
                begun = time.monotonic()
        at = end
    merge(request, view, start, size)
    return request, files


def _file_at(view: memoryview, at: int, end: int) -> tuple[str, memoryview] | None:
    """Return the name and content of a file; None if the entry has more, or another order."""
    tag, start, at = field_at(view, at, end, _LOAD)
    key = bytes(view[start:at])
    if tag != _KEY or not key.startswith(PREFIX.encode()) or at == end:
        return None
    tag, at, after = field_at(view, at, end, _LOAD)
    if tag != _VALUE or after != end:
        return None
    tag, at, after = field_at(view, at, end, _LOAD)
    if tag != _CONTENT or after != end:
        return None
    try:
        return key.decode(), view[at:end]
    except UnicodeDecodeError:
        return None
