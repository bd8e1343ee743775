"""Content codings of bodies: gzip and deflate. What is inflated never grows beyond a limit."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from zmqtriton_floor.errors import InvalidArgument, Unsupported

#: window bits that zlib wants for each coding
_WINDOW = {"gzip": 31, "deflate": 15}
#: Level 1 does nine tenths of what 6 does to tensors and their JSON, in a third of the time.
_LEVEL = 1


def inflate(data: bytes, coding: str, limit: int) -> bytes:
    """The body as it was. Raises Unsupported for another coding, InvalidArgument for data that are
    not exactly one stream of it, or that hold more than `limit` bytes."""
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return data
    if coding not in _WINDOW:
        raise Unsupported("Unsupported compression type")
    stream = zlib.decompressobj(_WINDOW[coding])
    try:
        whole = stream.decompress(data, limit + 1)
    except zlib.error:
        raise InvalidArgument(f"failed to decompress the request body as {coding}") from None
    if len(whole) > limit:
        raise InvalidArgument(
            f"decompressed request size exceeds the maximum allowed input size of {limit} bytes. "
            "Use --http-max-input-size to increase the limit."
        )
    if not stream.eof or stream.unused_data:
        raise InvalidArgument(f"failed to decompress the request body as {coding}")
    return whole


def choose(accepted: str) -> str:
    """The coding for a response to this Accept-Encoding; "" for none."""
    best, best_quality = "", 0.0
    for item in accepted[:1024].split(","):
        name, *attributes = (part.strip().lower() for part in item.split(";"))
        quality = _quality(attributes)
        if (name in _WINDOW or name == "identity") and quality > best_quality:
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


def deflate(pieces: Iterable[bytes | memoryview], coding: str) -> bytes:
    """The body in a coding that choose() gave."""
    stream = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW[coding])
    return b"".join([*map(stream.compress, pieces), stream.flush()])
