"""Receives a large binary body into the arena, where stubs will map it.

A client gets room once it has sent a part of what it announces, and arena memory does not wait long
for a client that stops sending: then the body is read like any other.
"""

from __future__ import annotations

import asyncio
from typing import Any

from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.http_api.asgi.request import MAX_BODY_BYTES, Pieces, Request
from zmqtriton_frontends.http_api.inference import binary
from zmqtriton_frontends.tensors.arena_body import (
    PATIENCE_S,
    SENT_PART,
    UNRESERVED_BYTES,
    ArenaBuffer,
)


async def receive_into_arena(req: Request, gateway: Gateway, read: Pieces) -> ArenaBuffer | None:
    """Return the whole body; None if it must be read like any other, after what was read so far."""
    size = _announced(req)
    text = req.header(b"inference-header-content-length")
    if text is None or size - binary.tensors_at(text, size) <= INLINE_BYTES:
        return None
    while size > max(UNRESERVED_BYTES, read.size * SENT_PART):
        if not read.has_more:
            return None
        await req.read_piece(read, MAX_BODY_BYTES)
    room = await gateway.payload.reserve(size, binary.tensors_at(text, size))
    if room is None:
        return None
    try:
        is_whole = await _fill(req, room.data, read)
    except BaseException:
        room.free()
        raise
    if is_whole and not read.is_refused:
        return room
    if not read.is_refused:
        read.pieces = [bytes(room.data[: read.size])]
    room.free()
    return None


def _announced(req: Request) -> int:
    """Return the announced size of a body.

    0 if it is unknown, too large, or not to be had this way.
    """
    length = req.header(b"content-length")
    size = int(length) if length is not None and length.isdigit() else 0
    is_plain = req.header(b"content-encoding") is None and req.connection is not None
    return size if is_plain and size <= MAX_BODY_BYTES else 0


async def _fill(req: Request, view: memoryview, read: Pieces) -> bool:
    """Fill the view; False if the body did not come in time, and what came is at its front."""
    position = 0
    for piece in read.pieces:
        view[position : position + len(piece)] = piece
        position += len(piece)
    connection: Any = req.connection
    while read.has_more and connection.has_pieces:
        count = len(read.pieces)
        await req.read_piece(read, MAX_BODY_BYTES)
        for piece in read.pieces[count:]:
            view[position : position + len(piece)] = piece
            position += len(piece)
    if not read.has_more or read.is_refused:
        return not read.is_refused
    whole = connection.fill(view[position:])
    if whole is None:
        return False
    try:
        await asyncio.wait_for(whole, PATIENCE_S)
    except asyncio.TimeoutError:
        return False
    finally:
        read.size = len(view) - connection.stop_filling()
    # the last byte comes once more, as what completes the request
    read.size -= 1
    await req.read_piece(read, MAX_BODY_BYTES)
    return True
