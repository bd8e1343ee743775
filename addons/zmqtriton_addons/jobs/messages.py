"""Messages between the process of jobs and those that ask it: a document, then bytes.

Both ends are of one server, on its own socket, so nothing is checked but the form.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Iterable
from typing import Any

#: The lengths of the document and of the bytes behind it.
_LENGTHS = struct.Struct("!IQ")
#: The bytes travel in parts of this size at most.
PART_BYTES = 1 << 20
#: The name of the service, and of its socket in the runtime directory.
SERVICE = "jobs"

Document = dict[str, Any]


def head(document: Document, size: int) -> bytes:
    """Return the beginning of a message, up to its bytes."""
    text = json.dumps(document).encode()
    return _LENGTHS.pack(len(text), size) + text


def ask(path: str, document: Document, within_s: float) -> Document:
    """Ask in a program that waits for the answer, and return it. Raises OSError."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(within_s)
        line.connect(path)
        line.sendall(head(document, 0))
        with line.makefile("rb") as file:
            start = file.read(_LENGTHS.size)
            if len(start) < _LENGTHS.size:
                raise ConnectionResetError("the connection ended before the answer")
            answer: Document = json.loads(file.read(_LENGTHS.unpack(start)[0]))
    return answer


async def read_head(reader: asyncio.StreamReader) -> tuple[Document, int]:
    """Return a document, and how many bytes are behind it. Raises IncompleteReadError."""
    length, size = _LENGTHS.unpack(await reader.readexactly(_LENGTHS.size))
    document: Document = json.loads(await reader.readexactly(length))
    return document, size


async def write(
    writer: asyncio.StreamWriter, document: Document, parts: Iterable[bytes] = ()
) -> None:
    """Send a message whose bytes are here."""
    pieces = list(parts)
    writer.write(head(document, sum(map(len, pieces))))
    for piece in pieces:
        for begin in range(0, len(piece), PART_BYTES):
            writer.write(memoryview(piece)[begin : begin + PART_BYTES])
            await writer.drain()
    await writer.drain()
