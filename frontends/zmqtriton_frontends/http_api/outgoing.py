"""Large outputs on their way to the client, from where the model's process has written them.

Made by infer.py. Nothing is copied for a client that reads; one that takes its time gets a copy, so
that it does not keep memory of the model's process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

#: So long a client may keep the memory that its response lies in.
PATIENCE_S = 1.0
#: Written at a time; more only when most of it has gone.
_STEP_BYTES = 4 << 20


class View:
    """Bytes that gunicorn passes on unread, and what stands before them. It copies a body that is
    true and no bytes; if it stops asking for the truth of it, it makes bytes of this one too."""

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


async def pieces(
    head: bytes, tail: list[memoryview | bytes], clock: Callable[[], float]
) -> AsyncIterator[Any]:
    """The body as Views, the first with the head before it. The list is emptied."""
    late_s = clock() + PATIENCE_S
    while tail:
        rest = memoryview(tail.pop(0))
        while rest:
            if clock() > late_s:
                # Who has not read it by now may never do.
                rest = memoryview(bytes(rest))
                tail[:] = [bytes(data) for data in tail]
                late_s = float("inf")
            piece, rest = rest[:_STEP_BYTES], rest[_STEP_BYTES:]
            yield View(piece, head)
            head = b""
            del piece
