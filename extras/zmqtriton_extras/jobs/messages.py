"""Messages between the process of jobs and its callers: a document, then bytes.

Both ends belong to one server, so only the form is checked. Both make ids.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
import struct
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from zmqtriton.sdk.frontend import Threads

#: The lengths of the document and of the bytes behind it.
_LENGTHS = struct.Struct("!IQ")
#: Value in place of the number of bytes if they come in frames, up to an empty one.
IN_FRAMES = (1 << 64) - 1
_FRAME = struct.Struct("!I")
LAST_FRAME = _FRAME.pack(0)
#: The bytes travel in parts of this size at most.
PART_BYTES = 1 << 20
_AT_ONCE_BYTES = 64 << 10
#: The name of the service, and of its socket in the runtime directory.
SERVICE = "jobs"

Document = dict[str, Any]
_LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_RANDOM_BITS = 80


def head(document: Document, size: int) -> bytes:
    """Return the beginning of a message, up to its bytes."""
    text = json.dumps(document).encode()
    return _LENGTHS.pack(len(text), size) + text


def ask(path: str, document: Document, within_s: float) -> Document:
    """Send a question, wait for the answer and return it. Raises OSError."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(within_s)
        line.connect(path)
        line.sendall(head(document, 0))
        with line.makefile("rb") as file:
            start = file.read(_LENGTHS.size)
            if len(start) < _LENGTHS.size:
                raise ConnectionResetError(
                    "the connection ended before the response: send the call again"
                )
            answer: Document = json.loads(file.read(_LENGTHS.unpack(start)[0]))
    return answer


async def read_head(reader: asyncio.StreamReader) -> tuple[Document, int]:
    """Return a document, and the number of bytes after it. Raises IncompleteReadError."""
    length, size = _LENGTHS.unpack(await reader.readexactly(_LENGTHS.size))
    document: Document = json.loads(await reader.readexactly(length))
    return document, size


class Body:
    """The bytes after a document, as they arrive."""

    def __init__(self, reader: asyncio.StreamReader, size: int) -> None:
        self._reader = reader
        self._is_in_frames = size == IN_FRAMES
        #: Number of bytes that are left, as far as it is known.
        self.left = 0 if self._is_in_frames else size

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the remaining bytes, in parts as they arrive. Raises IncompleteReadError."""
        while self.left or self._is_in_frames:
            if not self.left:
                [self.left] = _FRAME.unpack(await self._reader.readexactly(_FRAME.size))
                self._is_in_frames = self.left > 0
            part = await self._reader.readexactly(min(self.left, PART_BYTES))
            self.left -= len(part)
            if part:
                yield part

    async def drop(self) -> None:
        """Read and drop the remaining bytes, so that the next document follows."""
        async for _ in self.parts():
            continue


class Contents(NamedTuple):
    """A part of a file."""

    path: Path
    begin: int
    size: int


#: Threads that read and write files for clients; and those for the process's own work, which is
#: never that much.
DISK = Threads("jobs-disk", 8, 1024)
OWN = Threads("jobs", 4, 4096)
#: A document, and the bytes behind it.
Message = tuple[Document, Contents | bytes]


def frame(part: bytes) -> bytes:
    """Return a part with its length before it, for a body of unknown length."""
    return _FRAME.pack(len(part)) + part


async def write_file(writer: asyncio.StreamWriter, document: Document, contents: Contents) -> None:
    """Send a message with bytes from a file. Raises OSError."""
    file: Any = await DISK.run(open, contents.path, "rb")
    with file:
        writer.write(head(document, contents.size))
        file.seek(contents.begin)
        left = contents.size
        while left:
            part = await DISK.run(file.read, min(left, PART_BYTES))
            if not part:
                raise EOFError(f"{contents.path} is shorter than it was")
            left -= len(part)
            writer.write(part)
            await writer.drain()


async def write(
    writer: asyncio.StreamWriter, document: Document, parts: Iterable[bytes] = ()
) -> None:
    """Send a message with bytes in memory."""
    pieces = list(parts)
    size = sum(map(len, pieces))
    start = head(document, size)
    if size <= _AT_ONCE_BYTES:  # the other end is woken once
        start, pieces = b"".join((start, *pieces)), []
    writer.write(start)
    for piece in pieces:
        for begin in range(0, len(piece), PART_BYTES):
            writer.write(memoryview(piece)[begin : begin + PART_BYTES])
            await writer.drain()
    await writer.drain()


def new_id() -> str:
    """Return 26 letters, the time first and then 80 random bits (ULID)."""
    number = (time.time_ns() // 1_000_000) << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
    return "".join(_LETTERS[number >> 5 * place & 31] for place in reversed(range(26)))
