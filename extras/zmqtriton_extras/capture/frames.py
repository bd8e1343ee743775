"""Messages from frontends to the process of captures: frames' heads in JSON, then tensors' bytes.

Both ends belong to one server, so only the form is checked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import orjson

from zmqtriton.sdk.wire import wire

#: The name of the service, and of its socket in the runtime directory.
SERVICE = "capture"
#: The lengths of header and tensors.
LENGTHS = struct.Struct("!II")
#: Message that asks for the text of the metrics.
QUESTION = bytes(LENGTHS.size)
#: Bytes that a byte of JSON takes as objects.
_OBJECT_BYTES = 8

REQUEST, RESPONSE, END = range(3)


class Frame(NamedTuple):
    kind: int
    #: The number of its request on this connection.
    id: int
    details: dict[str, Any]
    tensors: Sequence[wire.Tensor] = ()
    #: Bytes that it takes of its receiver's memory.
    size: int = 0


def encode(frames: Iterable[Frame]) -> bytes:
    """Return the frames as a message of copied bytes, since the tensors' memory may change."""
    heads = []
    parts: list[bytes | memoryview] = [b""]
    for kind, number, details, tensors, _ in frames:
        rows: list[tuple[str, int, list[int], int]] = []
        for name, datatype, shape, data in tensors:
            view = None if data is None else memoryview(data).cast("B")
            rows.append((name, datatype, list(shape), -1 if view is None else len(view)))
            if view is not None:
                parts.append(view)
        heads.append((kind, number, details, rows))
    header = orjson.dumps(heads)
    parts[0] = LENGTHS.pack(len(header), sum(map(len, parts))) + header
    return b"".join(parts)


def decode(header: bytes, tensors: bytes) -> list[Frame]:
    heads = orjson.loads(header)
    frames, begin, head_bytes = [], 0, _OBJECT_BYTES * len(header) // len(heads)
    for kind, number, details, rows in heads:
        received, first = [], begin
        for name, datatype, shape, size in rows:
            data = None if size < 0 else memoryview(tensors)[begin : begin + size]
            received.append(wire.Tensor(name, datatype, shape, data))
            begin += max(size, 0)
        frames.append(Frame(kind, number, details, received, head_bytes + begin - first))
    return frames
