"""A large message comes straight into the arena, where stubs will map it.

Used by native_call.py for inferences. What a client announces is believed little by little, and
nothing of the arena waits long for a client that does not send: then the message is gathered as any
other. Does no I/O but by the payload's hands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from zmqtriton_floor.memory import INLINE_BYTES
from zmqtriton_frontends.grpc_api.raw import tensors_at
from zmqtriton_frontends.payload import Gathered

#: Smaller messages are not worth it.
MIN_BYTES = INLINE_BYTES
#: Room for so much is given to anybody who announces it.
_BELIEVED_BYTES = 1 << 20
#: Who announces more has to have sent this part of it.
_PART = 16
#: A message that takes longer is gathered in memory that nobody else may need.
_PATIENCE_S = 3.0

_NOTHING = memoryview(b"")


class Rooms(Protocol):
    """The gateway's payload."""

    def reserve_now(self, size: int, tensors_at: int) -> Gathered | None:
        """Room in the arena; None where it has to grow first."""

    async def reserve(self, size: int, tensors_at: int) -> Gathered | None:
        """The same; None where memory is short."""


class StraightBody:
    """One message, from its prefix to its last byte."""

    def __init__(self, rooms: Rooms, size: int) -> None:
        self._rooms = rooms
        self._size = size
        self._loop = asyncio.get_running_loop()
        #: What came before there was room, or where there is none.
        self._early = bytearray()
        self._room: Gathered | None = None
        self._position = 0
        self._has_asked = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_dropped = False

    def add(self, part: memoryview) -> None:
        if self._room is not None:
            self._room.data[self._position : self._position + len(part)] = part
            self._position += len(part)
            return
        self._early += part
        if not self._has_asked and self._size <= max(_BELIEVED_BYTES, len(self._early) * _PART):
            self._ask(tensors_at(self._early))

    def _ask(self, at: int) -> None:
        self._has_asked = True
        room = self._rooms.reserve_now(self._size, at)
        if room is not None:
            self._move(room)
        elif len(self._early) < self._size:
            reserving = self._loop.create_task(self._rooms.reserve(self._size, at))
            reserving.add_done_callback(self._reserved)

    def room(self) -> memoryview:
        """Where the next bytes may be written, to be told to filled(); empty: nowhere."""
        return _NOTHING if self._room is None else self._room.data[self._position :]

    def filled(self, size: int) -> None:
        self._position += size

    def whole(self) -> Gathered:
        """To be called once, when all has come; whoever gets it frees it."""
        room, self._room = self._room, None
        self.drop()
        return room if room is not None else Gathered(self._early)

    def drop(self) -> None:
        """The rest will not come."""
        self._stop_waiting()
        self._is_dropped = True
        if self._room is not None:
            self._room.free()
            self._room = None

    def _reserved(self, reserving: asyncio.Task[Gathered | None]) -> None:
        room = None
        if not reserving.cancelled() and reserving.exception() is None:
            room = reserving.result()
        if room is None:
            return
        if self._is_dropped:
            room.free()
        else:
            self._move(room)

    def _move(self, room: Gathered) -> None:
        self._position = len(self._early)
        room.data[: self._position] = self._early
        self._early = bytearray()
        self._room = room
        self._timer = self._loop.call_later(_PATIENCE_S, self._give_up)

    def _give_up(self) -> None:
        room, self._room, self._timer = self._room, None, None
        if room is not None:
            self._early += room.data[: self._position]
            room.free()

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def straight_into(rooms: Rooms) -> Callable[[int], StraightBody]:
    """What makes the body of a message of some size."""
    return lambda size: StraightBody(rooms, size)
