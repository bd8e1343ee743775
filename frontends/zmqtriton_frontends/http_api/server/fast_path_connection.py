"""The bytes of one connection: most inferences take the fast path, everything else is gunicorn's.

connections.py shows it all bytes first. One request after the other is answered; what comes
meanwhile waits, and if a client does not read its answers, nothing is read of it.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import Any

from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_frontends.http_api.asgi.problems import FAREWELL
from zmqtriton_frontends.http_api.inference import large_answer
from zmqtriton_frontends.http_api.inference.infer import Body
from zmqtriton_frontends.http_api.inference.response_encoding import Encoded
from zmqtriton_frontends.http_api.server.fast_path import (
    MAX_BODY_BYTES,
    FastPath,
    Head,
    PendingHttpInference,
)
from zmqtriton_frontends.tensors.arena_body import PATIENCE_S, ArenaBuffer

_MAX_HEAD_BYTES = 4096
#: While a request is in flight no more is read of what follows it.
_MAX_HELD_BYTES = 64 << 10
_END = b"\r\n\r\n"
_JSON = b"content-type: application/json\r\n"


class FastPathConnection:
    """The fast path of one connection, its `owner`."""

    def __init__(self, owner: Any, shortcut: FastPath) -> None:
        self._owner = owner
        self._shortcut = shortcut
        #: What has come and is nobody's yet; what of it check() has seen before.
        self._held = self._seen = b""
        #: Clients repeat themselves, so the meaning of the last head is often that of the next one.
        self._raw, self._head = b"", None  # type: bytes, Head | None
        #: A request is in flight, or its answer is not read.
        self.is_busy = False
        self._exchange: PendingHttpInference | None = None
        self._sending: asyncio.Task[None] | None = None
        #: When the last answer was written.
        self.used_at = 0.0
        #: Where a large body is, until it is answered.
        self._room: ArenaBuffer | None = None
        #: While it is still arriving: its head as it came, its deadline, and its reservation.
        self._begun = b""
        self._late_at = 0.0
        self._reserved = 0

    def take(self, data: bytes) -> bytes:
        """Take bytes, and return what gunicorn is to have."""
        if self.is_busy:
            self._held += data
            if len(self._held) > _MAX_HELD_BYTES:
                self._owner.pause_reading()
            return b""
        is_body = bool(self._held)
        if is_body:
            data, self._held = self._held + data, b""
        if not self._owner.awaits_request:
            return data
        start = data.find(_END, 0, _MAX_HEAD_BYTES) + len(_END)
        head = self._read(data[:start]) if start >= len(_END) else None
        if head is None:
            return data
        end = start + head.body_bytes
        if head.body_bytes > MAX_BODY_BYTES:
            return self._receive(head, data, start)
        if end > len(data):
            if is_body or start < len(data):
                return data  # it comes in pieces
            self._held = data
            return b""
        self.is_busy = True
        self._held = data[end:]
        self._begin(head, data[start:end])
        return b""

    def _begin(self, head: Head, body: Body) -> None:
        self._exchange = exchange = PendingHttpInference(self._shortcut, head, self._answer)
        exchange.begin(body)

    def _read(self, raw: bytes) -> Head | None:
        if raw != self._raw:
            self._raw, self._head = raw, self._shortcut.read(raw)
        return self._head

    # ---------------------------------------------------------- large bodies

    def _receive(self, head: Head, data: bytes, start: int) -> bytes:
        """Receive a body into the arena, past everything else."""
        found = self._shortcut.room(head)
        if found is None:
            return data
        room, self._reserved = found
        come = memoryview(data)[start : start + head.body_bytes]
        room.data[: len(come)] = come
        self.is_busy, self._room = True, room
        self._held = data[start + head.body_bytes :]
        if len(come) == head.body_bytes:
            self._release_reservation()
            self._begin(head, room.data)
        else:
            self._begun, self._late_at = data[:start], self._owner.now() + PATIENCE_S
            self._owner.fill_room(room.data[len(come) :])
        return b""

    @property
    def is_receiving(self) -> bool:
        """True while a large body comes."""
        return bool(self._begun)

    def filled(self) -> None:
        """Take note that it has come."""
        self._owner.end_room()  # otherwise the view would keep its segment mapped
        self._release_reservation()
        room, self._begun = self._room, b""
        assert self._head is not None, "it has begun with one"
        assert room is not None, "it has begun with one"
        self._begin(self._head, room.data)

    def give_up(self) -> bytes:
        """Receive no more of it, and return what of the request has come, for gunicorn."""
        room, head, self._begun = self._room, self._begun, b""
        if room is None or not head:
            return b""
        come = head + bytes(room.data[: len(room.data) - self._owner.end_room()])
        self._release_reservation()
        self._free()
        self.is_busy = False
        return come

    def _release_reservation(self) -> None:
        """Release the reservation: the announced body has come, or will not."""
        reserved, self._reserved = self._reserved, 0
        self._shortcut.announced.release(reserved)

    def _free(self) -> None:
        if self._room is not None:
            self._room.free()
            self._room = None

    def check(self) -> bytes:
        """Return what gunicorn is to have: a request whose body does not come.

        To be called now and then.
        """
        if self._begun:
            return self.give_up() if self._owner.now() >= self._late_at else b""
        late = self.leave() if self._held is self._seen else b""
        self._seen = self._held
        return late

    def leave(self) -> bytes:
        """Return what is gunicorn's from now on: a head whose body has not come."""
        if self.is_busy:
            return b""
        head, self._held = self._held, b""
        return head

    def lost(self) -> None:
        """Take note that the client has left."""
        if self._begun:
            self._owner.end_room()
            self._release_reservation()
            self._begun = b""
        if self._exchange is not None:
            self._exchange.cancel()
        self._free()
        if self._sending is not None:
            self._sending.cancel()
        self._held = b""

    # ---------------------------------------------------------------- answers

    def _answer(self, status: int, encoded: Encoded) -> None:
        headers, text, tail = encoded
        self._exchange = None
        self._free()  # what of it is needed is leased
        owner = self._owner
        if owner.is_closed:
            return
        if text == FAREWELL:
            owner.leave()
        named = _named(headers) if headers else _JSON
        size = len(text) + sum(map(len, tail)) if tail else len(text)
        first, last = owner.response_head(status)
        head = b"%s%scontent-length: %d\r\n%s\r\n" % (first, named, size, last)
        if size - len(text) > INLINE_BYTES:
            self._sending = asyncio.ensure_future(self._send(head + text, tail))
            return
        owner.transport.write(b"".join((head, text, *tail)) if tail else head + text)
        self._answered()

    async def _send(self, head: bytes, tail: list[bytes | memoryview]) -> None:
        async with aclosing(large_answer.pieces(head, tail, time.monotonic)) as pieces:
            async for piece in pieces:
                await self._owner.write_piece(piece)
        self._sending = None
        self._answered()

    def _answered(self) -> None:
        self.used_at = self._owner.now()
        if not self._owner.keeps_open:
            self._owner.close()
        elif not self._held and self._owner.is_read:
            self.is_busy = False
        elif self._owner.is_read:
            asyncio.get_running_loop().call_soon(self._go_on)

    def read(self) -> None:
        """Take note that the client has read what it was sent."""
        if self.is_busy:
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        is_answered = self._exchange is None and self._sending is None
        if not (self.is_busy and is_answered and self._owner.is_read) or self._owner.is_closed:
            return
        self.is_busy = False
        data, self._held = self._held, b""
        self._owner.resume_reading()
        if data:
            self._owner.data_received(data)


def _named(headers: tuple[tuple[str, str], ...]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers).encode("latin-1")
    return lines if headers[0][0] == "content-type" else _JSON + lines
