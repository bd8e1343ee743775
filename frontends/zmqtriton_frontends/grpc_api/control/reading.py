"""Reads the messages of control RPCs, without occupying the loop for long.

All messages but loads are small; a load may bring files, which stay where they are in the message.
"""

from __future__ import annotations

from typing import Any

from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.staging import PREFIX
from zmqtriton_frontends.gateway.loads import MAX_CONFIG_BYTES
from zmqtriton_frontends.grpc_api.call import RpcCall
from zmqtriton_frontends.grpc_api.inference.convert import parse
from zmqtriton_frontends.grpc_api.inference.gradual_parsing import (
    PART_BYTES,
    Data,
    GradualReader,
    field_at,
)
from zmqtriton_protos import message

#: Largest message that brings no files, in bytes; to read it takes two milliseconds at most.
MAX_BYTES = 64 << 10
#: Fields that a load may have, files included; of files there may be half as many.
MAX_FIELDS = 8192

_LOAD = message("inference.RepositoryModelLoadRequest")
#: Tags: of a parameter of a load; of its key and its value; of the bytes in the latter.
_PARAMETER, _KEY, _VALUE, _CONTENT = (number << 3 | 2 for number in (3, 1, 2, 4))


def read(kind: type[Any], data: Data) -> Any:
    """Return the message. Raises InvalidArgument if it is malformed or too large."""
    if len(data) > MAX_BYTES:
        name = kind.DESCRIPTOR.full_name
        raise InvalidArgument(f"an {name} has at most {MAX_BYTES} bytes, not {len(data)}")
    return parse(kind, data)  # type: ignore[arg-type]  # any buffer will do


async def read_load(data: Data, call: RpcCall) -> tuple[Any, dict[str, memoryview]]:
    """Return a load without its large files, and the files by their names, as views.

    Raises InvalidArgument if the rest is malformed or too large.
    """
    if len(data) <= MAX_BYTES:
        return read(_LOAD, data), {}
    request, files, view = _LOAD(), dict[str, memoryview](), memoryview(data)

    def is_file(at: int, tag: int, inner: int, end: int) -> bool:
        """Keep a file as a view; return False for another field."""
        is_large = end - at > PART_BYTES
        file = _file_at(view, inner, end) if is_large and tag == _PARAMETER else None
        if file is not None:
            files[file[0]] = file[1]
        elif end - at > MAX_CONFIG_BYTES:
            text = f"of {end - at} bytes exceeds the limit of {MAX_CONFIG_BYTES}"
            raise InvalidArgument(f"a parameter of a load that is no file {text}")
        return file is not None

    reader = GradualReader(data, call, _LOAD, "a load", MAX_FIELDS)
    async for _ in reader.merge(request, 0, len(view), is_file):
        pass
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
