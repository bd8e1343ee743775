"""gzip and deflate, for HTTP bodies and gRPC messages; the callers word the errors.

What is inflated comes in steps that never grow beyond what the caller says.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

#: The window bits of zlib for each coding.
_WINDOW = {"gzip": 31, "deflate": 15}
#: Level 1 does nine tenths of what 6 does to tensors and their JSON, in a third of the time.
_LEVEL = 1

CODINGS = frozenset(_WINDOW)


#: How much of the data zlib is given at a time: it copies what it does not use.
_INPUT_BYTES = 64 << 10


class Inflating:
    """Data that are inflated step by step."""

    def __init__(self, data: bytes | bytearray | memoryview, coding: str) -> None:
        self._stream = zlib.decompressobj(_WINDOW[coding])
        self._left = memoryview(data)
        #: Nothing more comes.
        self.is_over = False

    @property
    def is_whole(self) -> bool:
        """True once it is over if the data were exactly one stream of the coding."""
        return self._stream.eof and not self._stream.unused_data and not self._left

    def step(self, max_bytes: int) -> bytes:
        """Return the next bytes, so many or all that come. May run in a thread."""
        stream, parts = self._stream, list[bytes]()
        while max_bytes and not self.is_over:
            data: Any = stream.unconsumed_tail
            if not data:
                data, self._left = self._left[:_INPUT_BYTES], self._left[_INPUT_BYTES:]
            try:
                part = stream.decompress(data, max_bytes)
            except zlib.error:
                self.is_over = True
                break
            parts.append(part)
            max_bytes -= len(part)
            self.is_over = stream.eof or not (part or self._left or stream.unconsumed_tail)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def deflate(pieces: Iterable[bytes | memoryview], coding: str) -> bytes:
    stream = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW[coding])
    return b"".join([*map(stream.compress, pieces), stream.flush()])


def choose(accepted: str) -> str:
    """Return the coding for a response to this Accept-Encoding; "" for none."""
    best, best_quality = "", 0.0
    for item in accepted[:1024].split(","):
        name, *attributes = (part.strip().lower() for part in item.split(";"))
        quality = _quality(attributes)
        if (name in CODINGS or name == "identity") and quality > best_quality:
            best, best_quality = name, quality
    return "" if best == "identity" else best


def _quality(attributes: list[str]) -> float:
    for attribute in attributes:
        if attribute.startswith("q="):
            try:
                return float(attribute[2:])
            except ValueError:
                return 0.0
    return 1.0
