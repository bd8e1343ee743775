"""Sends large outputs to the client from where the model's process has written them.

Nothing is copied for a client that reads; for a slow one a copy is made, so that it does not occupy
memory of the model's process.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import NamedTuple

#: How long a client may keep the memory that its response lies in.
PATIENCE_S = 1.0
#: The limit of such copies in a process. Further clients keep the memory that they have.
MAX_COPIED_BYTES = 256 << 20
#: How much is written at a time; more only when most of it has gone.
STEP_BYTES = 4 << 20


class Piece(NamedTuple):
    """Bytes that are written from where they lie, and what precedes them."""

    head: bytes
    view: memoryview


class Copies:
    """The amount of unread answers that was copied."""

    def __init__(self) -> None:
        self._bytes = 0

    def take(self, size: int) -> int:
        """Take the size, if there is room for it, or 0."""
        if self._bytes + size > MAX_COPIED_BYTES:
            return 0
        self._bytes += size
        return size

    def give_back(self, size: int) -> None:
        self._bytes -= size


_copies = Copies()


async def pieces(
    head: bytes,
    tail: list[memoryview | bytes],
    clock: Callable[[], float],
    copies: Copies = _copies,
) -> AsyncGenerator[Piece, None]:
    """Return the body in pieces, the first with the head before it. The list is emptied."""
    late_s, copied = clock() + PATIENCE_S, 0
    try:
        while tail:
            rest = memoryview(tail.pop(0))
            while rest:
                if not copied and clock() > late_s:
                    # a client that has not read it by now may never do
                    copied = copies.take(len(rest) + sum(map(len, tail)))
                    if copied:
                        rest = memoryview(bytes(rest))
                        tail[:] = [bytes(data) for data in tail]
                piece, rest = rest[:STEP_BYTES], rest[STEP_BYTES:]
                yield Piece(head, piece)
                head = b""
                del piece
    finally:
        copies.give_back(copied)
