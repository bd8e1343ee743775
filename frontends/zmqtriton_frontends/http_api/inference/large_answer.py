"""Sends large outputs to the client from where the model's process has written them.

Nothing is copied for a client that reads; for a slow one a copy is made, so that it does not occupy
memory of the model's process.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

#: How long a client may keep the memory that its response lies in.
PATIENCE_S = 1.0
#: The limit of such copies in a process. Further clients keep the memory that they have.
MAX_COPIED_BYTES = 256 << 20
#: How much is written at a time; more only when most of it has gone.
_STEP_BYTES = 4 << 20


class View:
    """Bytes that gunicorn passes on unread, and what precedes them.

    It copies a body that is true and not bytes; if it stops testing that, it makes bytes of this
    one, too.
    """

    __slots__ = ("head", "view")

    def __init__(self, view: memoryview, head: bytes = b"") -> None:
        self.head = head
        self.view = view

    def __len__(self) -> int:
        return len(self.head) + len(self.view)

    def __bool__(self) -> bool:
        return False

    def __bytes__(self) -> bytes:
        return self.head + bytes(self.view)


class Copies:
    """How much of the unread answers was copied."""

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
) -> AsyncGenerator[Any, None]:
    """Return the body as Views, the first with the head before it. The list is emptied."""
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
                piece, rest = rest[:_STEP_BYTES], rest[_STEP_BYTES:]
                yield View(piece, head)
                head = b""
                del piece
    finally:
        copies.give_back(copied)
