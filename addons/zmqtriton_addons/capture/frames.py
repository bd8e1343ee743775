"""Messages from frontends to the process of captures: a header in JSON, then tensors' bytes.

Both ends are of one server, on its own socket, so nothing is checked but the form.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import orjson

from zmqtriton_floor.wire import Tensor

#: The name of the service, and of its socket in the runtime directory.
SERVICE = "capture"
#: The lengths of header and tensors.
LENGTHS = struct.Struct("!II")
#: In place of a message: asks for the text of the page of metrics.
QUESTION = bytes(LENGTHS.size)
#: Bytes that a byte of JSON takes as objects.
_OBJECT_BYTES = 8

REQUEST, RESPONSE, END = range(3)


class Frame(NamedTuple):
    kind: int
    #: The number of its request on this connection.
    id: int
    details: dict[str, Any]
    tensors: Sequence[Tensor] = ()
    #: Bytes that it takes of its receiver's memory.
    size: int = 0


def size_of(tensors: Iterable[Tensor]) -> int:
    """Return how many bytes the tensors have here, without those in clients' memory."""
    return sum(len(memoryview(t.data).cast("B")) for t in tensors if t.data is not None)


def timestamp(seconds: float) -> str:
    """Return a time of the wall clock as records have it."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1_000_000):06}Z"


def encode(frame: Frame) -> bytes:
    """Return the bytes, which are a copy: the tensors' memory may change at once."""
    rows: list[tuple[str, int, list[int], int]] = []
    parts: list[bytes | memoryview] = [b""]
    for name, datatype, shape, data in frame.tensors:
        view = None if data is None else memoryview(data).cast("B")
        rows.append((name, datatype, list(shape), -1 if view is None else len(view)))
        if view is not None:
            parts.append(view)
    header = orjson.dumps((frame.kind, frame.id, frame.details, rows))
    parts[0] = LENGTHS.pack(len(header), sum(map(len, parts))) + header
    return b"".join(parts)


def decode(header: bytes, tensors: bytes) -> Frame:
    kind, number, details, rows = orjson.loads(header)
    received, begin = [], 0
    for name, datatype, shape, size in rows:
        data = None if size < 0 else memoryview(tensors)[begin : begin + size]
        received.append(Tensor(name, datatype, shape, data))
        begin += max(size, 0)
    return Frame(kind, number, details, received, _OBJECT_BYTES * len(header) + len(tensors))
