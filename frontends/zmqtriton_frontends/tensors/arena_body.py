"""Receives a large message into the arena, where stubs will map it.

Clients announce the size of a message before they send it. Its room in the arena is that large, and
its memory is allocated in steps, a step ahead of the arrived bytes: the first steps from a shared
budget, later ones from the client's share of the ledger. A client that sends next to nothing loses
the room, and its message is collected in ordinary memory. The only I/O is the payload's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from zmqtriton_floor.arena import INLINE_BYTES, Arena
from zmqtriton_floor.errors import Unavailable

#: Bytes of memory that a process makes for messages that are announced and not yet sent; the ledger
#: does not count them.
MAX_ANNOUNCED_BYTES = 32 << 20


class ByteBudget:
    """A budget of memory for one purpose in a process, apart from the ledger."""

    def __init__(self, limit: int = MAX_ANNOUNCED_BYTES) -> None:
        """Set up; the default limit is for bytes that are announced and not sent yet."""
        self._left = limit

    def reserve(self, size: int) -> int:
        """Reserve the size, to be released later, and return it; 0 if less is left."""
        if size > self._left:
            return 0
        self._left -= size
        return size

    def release(self, size: int) -> None:
        self._left += size


#: Size in bytes of the smallest message that is received into the arena.
MIN_BYTES = INLINE_BYTES
#: Bytes of memory that are made at once, which keeps a loop for a millisecond.
STEP_BYTES = 4 << 20
#: Fraction of the first step (a 16th) that a client without a reservation must have sent.
SENT_PART = 16
#: Bytes of room at which the next step is due: what comes at once finds room.
_AHEAD_BYTES = 256 << 10
#: Bytes at the beginning of a message that show where its tensors begin, if any do.
_HEAD_BYTES = 4096
#: Time limit in seconds for a client with a reservation to have sent that fraction, too.
PATIENCE_S = 3.0

NOTHING = memoryview(b"")

#: Finds where the tensors begin by the first bytes of a message; 0 if they do not show it.
TensorsAt = Callable[[bytes | bytearray | memoryview], int]


class Rooms(Protocol):
    """The gateway's payload, as far as it reserves room in the arena."""

    def reserve_now(self, size: int, tensors_at: int) -> ArenaBuffer | None:
        """Return room in the arena; None if it has to grow first."""

    async def reserve(self, size: int, tensors_at: int) -> ArenaBuffer | None:
        """Return room in the arena, which may grow; None if memory is short."""

    def abandon(self, room: ArenaBuffer) -> None:
        """Give room back whose message was not completed."""


class ArenaBody:
    """A message on its way into memory, from its prefix to its last byte."""

    def __init__(self, rooms: Rooms, size: int, budget: ByteBudget, tensors_at: TensorsAt) -> None:
        self._rooms = rooms
        self._size = size
        self._step = min(size, STEP_BYTES)
        self._budget = budget
        self._tensors_at = tensors_at
        self._reserved_bytes = 0
        self._loop = asyncio.get_running_loop()
        #: Bytes that came before there was room, or if there is none, in pieces of about a step.
        self._early: list[bytearray] = []
        self._early_bytes = 0
        #: Room that is not in use before all of that is moved to it.
        self._next_room: ArenaBuffer | None = None
        self._room: ArenaBuffer | None = None
        self._position = 0
        #: Ends of the parts of the room that should have memory, and that have it.
        self._due = self._made = 0
        #: Bytes of its memory, and of what it is going to get next, less those reserved for it.
        self.held_bytes = 0
        self._has_asked = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_dropped = False

    def add(self, part: memoryview) -> None:
        """Add the next bytes. Raises MemoryError if the machine has no memory for them."""
        if self._room is None and not self._has_asked:
            if self._early:
                self._collect(part)
                part = NOTHING
            self._consider(self._early[0] if self._early else part, self._early_bytes + len(part))
        if self._room is not None:
            end = self._position + len(part)
            if end > self._made and not self._make(self._room, max(end, self._due)):
                raise MemoryError
            self._room.data[self._position : end] = part
            self._position = end
            if self._due < self._size:
                self._look_ahead()
        else:
            self._collect(part)
            self._count()

    def _collect(self, part: memoryview) -> None:
        if self._early and len(self._early[-1]) < STEP_BYTES:
            self._early[-1] += part
        elif part:
            self._early.append(bytearray(part))
        self._early_bytes += len(part)

    def _consider(self, beginning: bytearray | memoryview, size: int) -> None:
        """Request room in the arena as soon as that is allowed; `size` bytes have arrived."""
        at = self._tensors_at(beginning)
        if not at and size < min(_HEAD_BYTES, self._size):
            return
        self._reserved_bytes = self._budget.reserve(self._step)
        if not (self._reserved_bytes or self._has_shown_itself(size)):
            return
        self._has_asked = True
        self._due = self._step
        if not self._reserved_bytes:
            self._count()
        room = self._rooms.reserve_now(self._size, at)
        if room is not None:
            self._move(room)
        elif size < self._size:
            reserving = self._loop.create_task(self._rooms.reserve(self._size, at))
            reserving.add_done_callback(self._reserved)
        else:
            self._due = 0
            self._count()

    def _has_shown_itself(self, size: int) -> bool:
        """Return whether a client has sent enough for its announced size to be believed."""
        return size * SENT_PART >= self._step

    def room(self) -> memoryview:
        """Return memory for the next bytes, for filled(); an empty view if add() takes them."""
        room = self._room
        if room is None:
            return NOTHING
        if self._due > self._made:
            self._make(room, self._due)
        rest: memoryview = room.data[self._position : self._made]
        return rest

    def filled(self, size: int) -> None:
        self._position += size
        if self._due < self._size:
            self._look_ahead()

    def _look_ahead(self) -> None:
        if self._due - self._position < _AHEAD_BYTES:
            self._due = max(self._due, min(self._position + self._step, self._size))
            self._count()

    def _count(self) -> None:
        self.held_bytes = max(0, self._early_bytes + self._due - self._reserved_bytes)

    def _make(self, room: ArenaBuffer, end: int) -> bool:
        """Allocate the memory before this position; return False if memory is short."""
        try:
            room.make(end)
        except Unavailable:
            return False
        self._made = end
        return True

    def whole(self) -> ArenaBuffer:
        """Return the whole message; called once, when all has arrived. The caller frees it."""
        while self._next_room is not None:
            self._move_step()
        room, self._room = self._room, None
        self._is_dropped = True
        self._release_reservation()
        if room is not None:
            return room
        early = self._early
        return ArenaBuffer(early[0] if len(early) == 1 else b"".join(early))

    def drop(self) -> None:
        """Drop the message: the rest will not arrive."""
        self._release_reservation()
        self._is_dropped = True
        for room in (self._room, self._next_room):
            if room is not None:
                self._rooms.abandon(room)
        self._room = self._next_room = None

    def _reserved(self, reserving: asyncio.Task[ArenaBuffer | None]) -> None:
        room = None
        if not reserving.cancelled() and reserving.exception() is None:
            room = reserving.result()
        if room is None:
            self._due = 0
            self._release_reservation()
            self._count()
        elif self._is_dropped:
            self._rooms.abandon(room)
        else:
            self._move(room)

    def _move(self, room: ArenaBuffer) -> None:
        self._made = room.made
        if self._reserved_bytes:
            self._timer = self._loop.call_later(PATIENCE_S, self._end_patience)
        if self._early:
            self._next_room = room
            self._move_step()
        else:
            self._room = room

    def _move_step(self) -> None:
        """Move some of the early bytes; other work of the loop runs between such steps."""
        room = self._next_room
        if room is None:  # it was dropped
            return
        piece = self._early[0]
        end = self._position + len(piece)
        if end > self._made and not self._make(room, max(end, self._due)):
            self._next_room = None
            self._leave(room)
            return
        room.data[self._position : end] = piece
        self._early_bytes -= len(piece)
        del self._early[0]
        self._position = end
        self._look_ahead()
        self._count()
        if self._early:
            self._loop.call_soon(self._move_step)
        else:
            self._room, self._next_room = room, None

    def _end_patience(self) -> None:
        """End the reservation: keep its memory if the client has sent enough, else free it."""
        self._release_reservation()
        room = self._room
        if room is not None and not self._has_shown_itself(self._position):
            self._room = None
            self._leave(room)
        else:
            self._count()

    def _leave(self, room: ArenaBuffer) -> None:
        """Move the bytes from the room to ordinary memory, before others; free the room."""
        size, self._position, self._due = self._position, 0, 0
        if size:
            self._early.insert(0, bytearray(room.data[:size]))
            self._early_bytes += size
        self._rooms.abandon(room)
        self._count()

    def _release_reservation(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._reserved_bytes:
            self._budget.release(self._reserved_bytes)
            self._reserved_bytes = 0


class ArenaBuffer:
    """A body for use in a `with` block; tensors that were placed in the block outlive it."""

    def __init__(
        self, data: Any, arena: Arena | None = None, block: int = 0, start: int = 0, made: int = 0
    ) -> None:
        """Set up; in an arena, the data begin `start` bytes after the beginning of their block."""
        self.data = data
        #: Bytes of it, from the beginning, that have memory for certain.
        self.made = made
        #: The data lie in the arena, where stubs can map them.
        self.is_shared = arena is not None
        self._arena = arena
        self.block = block
        self._start = start

    def __enter__(self) -> Any:
        return self.data

    def __exit__(self, *error: object) -> None:
        self.free()

    def make(self, end: int) -> None:
        """Allocate the memory before this position. Raises Unavailable if memory is short."""
        if self._arena is not None:
            self._arena.make(self.block, self._start + end)

    def free(self) -> None:
        if self._arena is not None:
            self._arena.leases.end([self.block])
