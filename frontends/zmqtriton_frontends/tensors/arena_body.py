"""Receives a large message into the arena, where stubs will map it.

Clients announce the size of a message before they send it. They get arena memory for it out of a
shared budget, or once they have sent a part of it; and it is taken back from a client that stops
sending: then the message is collected in ordinary memory. The only I/O is the payload's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from zmqtriton_floor.arena import INLINE_BYTES, Arena

#: Of a process.
MAX_ANNOUNCED_BYTES = 64 << 20


class AnnouncedBytesBudget:
    """The arena memory that a process gives for bytes that are announced and not yet sent."""

    def __init__(self, limit: int = MAX_ANNOUNCED_BYTES) -> None:
        self._left = limit

    def reserve(self, size: int) -> int:
        """Reserve memory for announced bytes; return the size, or 0 if the budget is spent.

        To be released when the body has come or will not.
        """
        if size > self._left:
            return 0
        self._left -= size
        return size

    def release(self, size: int) -> None:
        self._left += size


#: Smaller messages are not worth it.
MIN_BYTES = INLINE_BYTES
#: Messages up to this size get room without a reservation.
UNRESERVED_BYTES = 1 << 20
#: A client without a reservation must have sent this fraction of a larger message: 1/16.
SENT_PART = 16
#: If the place of the tensors can be told at all, these bytes are enough.
_HEAD_BYTES = 4096
#: A message that takes longer is moved to ordinary memory, so that it does not occupy the arena.
PATIENCE_S = 3.0

_NOTHING = memoryview(b"")

#: Finds where the tensors begin by the first bytes of a message; 0 if they do not show it.
TensorsAt = Callable[[bytes | bytearray | memoryview], int]


class Rooms(Protocol):
    """The gateway's payload."""

    def reserve_now(self, size: int, tensors_at: int) -> ArenaBuffer | None:
        """Return room in the arena; None if it has to grow first."""

    async def reserve(self, size: int, tensors_at: int) -> ArenaBuffer | None:
        """Return room in the arena, which may grow; None if memory is short."""


class ArenaBody:
    """One message, from its prefix to its last byte."""

    def __init__(
        self, rooms: Rooms, size: int, budget: AnnouncedBytesBudget, tensors_at: TensorsAt
    ) -> None:
        self._rooms = rooms
        self._size = size
        self._budget = budget
        self._tensors_at = tensors_at
        self._reserved_bytes = 0
        self._loop = asyncio.get_running_loop()
        #: What came before there was room, or if there is none.
        self._early = bytearray()
        self._room: ArenaBuffer | None = None
        self._position = 0
        self._has_asked = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_dropped = False

    def add(self, part: memoryview) -> None:
        if self._room is None and not self._has_asked:
            if self._early:
                self._early += part
                part = _NOTHING
            self._consider(self._early or part)
        if self._room is not None:
            self._room.data[self._position : self._position + len(part)] = part
            self._position += len(part)
        else:
            self._early += part

    def _consider(self, come: bytearray | memoryview) -> None:
        """Ask for room, once that is allowed."""
        size, at = len(come), self._tensors_at(come)
        if not at and size < min(_HEAD_BYTES, self._size):
            return
        if self._size > max(UNRESERVED_BYTES, size * SENT_PART):
            self._reserved_bytes = self._budget.reserve(self._size)
            if not self._reserved_bytes:
                return
        self._has_asked = True
        room = self._rooms.reserve_now(self._size, at)
        if room is not None:
            self._move(room)
        elif size < self._size:
            reserving = self._loop.create_task(self._rooms.reserve(self._size, at))
            reserving.add_done_callback(self._reserved)

    def room(self) -> memoryview:
        """Return where the next bytes may be written, to be told to filled(); empty if nowhere."""
        return _NOTHING if self._room is None else self._room.data[self._position :]

    def filled(self, size: int) -> None:
        self._position += size

    @property
    def held_bytes(self) -> int:
        """The part of it in ordinary memory."""
        return len(self._early)

    def whole(self) -> ArenaBuffer:
        """Return the message; to be called once, when all has come. The caller frees it."""
        room, self._room = self._room, None
        self._is_dropped = True
        self._stop_waiting()
        return room if room is not None else ArenaBuffer(self._early)

    def drop(self) -> None:
        """Drop it: the rest will not come."""
        self._stop_waiting()
        self._is_dropped = True
        if self._room is not None:
            self._room.free()
            self._room = None

    def _reserved(self, reserving: asyncio.Task[ArenaBuffer | None]) -> None:
        room = None
        if not reserving.cancelled() and reserving.exception() is None:
            room = reserving.result()
        if room is None:
            return
        if self._is_dropped:
            room.free()
        else:
            self._move(room)

    def _move(self, room: ArenaBuffer) -> None:
        self._position = len(self._early)
        room.data[: self._position] = self._early
        self._early = bytearray()
        self._room = room
        self._timer = self._loop.call_later(PATIENCE_S, self._give_up)

    def _give_up(self) -> None:
        self._stop_waiting()
        room, self._room = self._room, None
        if room is not None:
            self._early += room.data[: self._position]
            room.free()

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._reserved_bytes:
            self._budget.release(self._reserved_bytes)
            self._reserved_bytes = 0


class ArenaBuffer:
    """A body to be used within a with statement; tensors placed meanwhile outlive it."""

    def __init__(self, data: Any, arena: Arena | None = None, block: int = 0) -> None:
        self.data = data
        self._arena = arena
        self._block = block

    def __enter__(self) -> Any:
        return self.data

    def __exit__(self, *error: object) -> None:
        self.free()

    def free(self) -> None:
        if self._arena is not None:
            self._arena.leases.end([self._block])
