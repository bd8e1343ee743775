"""Content codings of HTTP bodies: what clients may send, and which one they get."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from zmqtriton_floor.errors import InvalidArgument, Unsupported
from zmqtriton_frontends.http_api.inference import json_documents
from zmqtriton_frontends.process import codecs


class UnsupportedCoding(Unsupported):
    """Raised for a body in a coding that nobody here reads; tells which are read."""

    headers = (("Accept-Encoding", "gzip, deflate"),)


async def inflate(
    data: bytes | bytearray, coding: str, limit: int, client: object, *, hold: Callable[[int], None]
) -> bytes | bytearray:
    """Inflate a body of a client; `hold` is told of each step, and raises if there is no room.

    Raises UnsupportedCoding for another coding, InvalidArgument for data that are not exactly one
    stream of it, or that hold more than `limit` bytes.
    """
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return data
    if coding not in codecs.CODINGS:
        raise UnsupportedCoding("Unsupported compression type")
    aside = partial(json_documents.aside, len(data))
    whole = await codecs.inflate(data, coding, limit, client, hold=hold, aside=aside)
    if whole is None:
        raise InvalidArgument(f"failed to decompress the request body as {coding}")
    if len(whole) > limit:
        raise InvalidArgument(
            f"decompressed request size exceeds the maximum allowed input size of {limit} bytes. "
            "Use --http-max-input-size to increase the limit."
        )
    return whole
