"""A large message comes straight into the arena, where stubs will map it.

Used by stream_call.py for inferences. What a client announces is believed little by little, and
nothing of the arena waits long for a client that does not send: then the message is gathered as any
other. Does no I/O but by the payload's hands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from zmqtriton_floor.arena import INLINE_BYTES, Arena
from zmqtriton_frontends.grpc_api.inference.raw_tensors import tensors_at


class AnnouncedBytesBudget:
    """Of one process."""

    def __init__(self, most: int = 64 << 20) -> None:
        self._left = most

    def reserve(self, size: int) -> int:
        """The size, to be given back when the body has come or will not; 0 where that is too much
        at the moment."""
        if size > self._left:
            return 0
        self._left -= size
        return size

    def release(self, size: int) -> None:
        self._left += size


#: Smaller messages are not worth it.
MIN_BYTES = INLINE_BYTES
#: Room for so much is given to anybody who announces it.
_BELIEVED_BYTES = 1 << 20
#: Who announces more has to have sent this part of it, unless few do that.
_PART = 16
#: Where the tensors begin shows by then, if it ever does.
_HEAD_BYTES = 4096
#: A message that takes longer is gathered in memory that nobody else may need.
_PATIENCE_S = 3.0

_NOTHING = memoryview(b"")


class Rooms(Protocol):
    """The gateway's payload."""

    def reserve_now(self, size: int, tensors_at: int) -> ArenaBuffer | None:
        """Room in the arena; None where it has to grow first."""

    async def reserve(self, size: int, tensors_at: int) -> ArenaBuffer | None:
        """The same; None where memory is short."""


class ArenaBody:
    """One message, from its prefix to its last byte."""

    def __init__(self, rooms: Rooms, size: int, belief: AnnouncedBytesBudget) -> None:
        self._rooms = rooms
        self._size = size
        self._belief = belief
        #: What of that is to be given back.
        self._believed = 0
        self._loop = asyncio.get_running_loop()
        #: What came before there was room, or where there is none.
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
        """Asks for room, once that may be."""
        size, at = len(come), tensors_at(come)
        if not at and size < min(_HEAD_BYTES, self._size):
            return
        if self._size > max(_BELIEVED_BYTES, size * _PART):
            self._believed = self._belief.reserve(self._size)
            if not self._believed:
                return
        self._has_asked = True
        room = self._rooms.reserve_now(self._size, at)
        if room is not None:
            self._move(room)
        elif size < self._size:
            reserving = self._loop.create_task(self._rooms.reserve(self._size, at))
            reserving.add_done_callback(self._reserved)

    def room(self) -> memoryview:
        """Where the next bytes may be written, to be told to filled(); empty: nowhere."""
        return _NOTHING if self._room is None else self._room.data[self._position :]

    def filled(self, size: int) -> None:
        self._position += size

    def whole(self) -> ArenaBuffer:
        """To be called once, when all has come; whoever gets it frees it."""
        room, self._room = self._room, None
        self.drop()
        return room if room is not None else ArenaBuffer(self._early)

    def drop(self) -> None:
        """The rest will not come."""
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
        self._timer = self._loop.call_later(_PATIENCE_S, self._give_up)

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
        believed, self._believed = self._believed, 0
        self._belief.release(believed)


def arena_body_factory(rooms: Rooms, belief: AnnouncedBytesBudget) -> Callable[[int], ArenaBody]:
    """What makes the body of a message of some size."""
    return lambda size: ArenaBody(rooms, size, belief)


class ArenaBuffer:
    """A body to be used within a with statement; what was placed meanwhile outlives it."""

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
            self._arena.free([self._block])
