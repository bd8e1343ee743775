"""HTTPS: how a connection becomes an encrypted one.

The loop could do the handshake itself, but would hide what it has not sent yet, by which
connection.py knows who reads and who stalls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from zmqtriton_frontends.http_api.server.connection import Connection
from zmqtriton_frontends.process.tls import Encryption

#: The limit for a client's handshake.
HANDSHAKE_WITHIN_S = 9.0
#: Clients that speak HTTP without TLS, whose requests begin with a method, may read an answer.
_FAREWELL_S = 1.0
_TOLD = b'{"error":"this port speaks TLS: use https://"}'
_PLAIN_REFUSAL = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_TOLD), _TOLD)
)


class Tls:
    def __init__(self, settings: dict[str, Any]) -> None:
        """Set up. Raises OSError for files that cannot be used."""
        self._encryption = Encryption(settings, "http", "http/1.1")
        self.context = self._encryption.context
        self.renew = self._encryption.renew
        self._handshakes: set[asyncio.Task[None]] = set()

    def secured(self, make: Callable[[], Connection]) -> Callable[[], asyncio.Protocol]:
        """Make what a listener gets in place of connections."""
        return lambda: _Unsecured(self, make)

    def begin(self, plain: Any, opening: _Unsecured, make: Callable[[], Connection]) -> None:
        task = asyncio.ensure_future(self._open(plain, opening, make))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _open(self, plain: Any, opening: _Unsecured, make: Callable[[], Connection]) -> None:
        begin_s = (loop := asyncio.get_running_loop()).time()
        try:
            await asyncio.wait((opening.first,), timeout=HANDSHAKE_WITHIN_S)
            left_s = HANDSHAKE_WITHIN_S - (loop.time() - begin_s)
            if plain.is_closing() or not opening.unread or left_s <= 0:
                plain.abort()
            elif opening.is_plain:
                await _refuse(plain, opening)
            else:
                await self._secure(plain, opening.unread, left_s, make)
        except asyncio.CancelledError:
            plain.abort()
            raise

    async def _secure(
        self, plain: Any, unread: bytearray, within_s: float, make: Callable[[], Connection]
    ) -> None:
        loop, early = asyncio.get_running_loop(), _Early()
        upgrade = asyncio.ensure_future(
            loop.start_tls(
                *(plain, early, self.context),
                server_side=True,
                ssl_handshake_timeout=within_s,
            )
        )
        try:
            await asyncio.sleep(0)
            # by now the loop's own protocol is there, and in a turn it can take what came before
            loop.call_soon(_feed, plain.get_protocol(), unread)
            transport = await upgrade
        except OSError:  # not a client of ours
            plain.abort()
            return
        except BaseException:
            upgrade.cancel()
            plain.abort()
            raise
        if transport is None or early.has_ended:
            plain.abort()
            return
        connection = make()
        connection.below = plain
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if early.data:
            connection.data_received(bytes(early.data))

    def close(self) -> None:
        """Close: handshakes in progress need not go on."""
        for handshake in self._handshakes:
            handshake.cancel()


async def _refuse(plain: Any, opening: _Unsecured) -> None:
    """Answer a request without TLS, and give its client time to read that."""
    opening.is_refused = True
    plain.write(_PLAIN_REFUSAL)
    if plain.can_write_eof():
        plain.write_eof()
    # closed at once, with something unread, the client might lose the answer
    await asyncio.wait((opening.lost,), timeout=_FAREWELL_S)
    plain.abort()


def _feed(protocol: Any, data: bytearray) -> None:
    """Give a protocol what somebody else has read."""
    while data:
        room = protocol.get_buffer(len(data))
        size = min(len(room), len(data))
        room[:size] = data[:size]
        del data[:size]
        protocol.buffer_updated(size)


class _Unsecured(asyncio.Protocol):
    """A connection of which nobody knows yet whether it speaks TLS, or that does not."""

    def __init__(self, tls: Tls, make: Callable[[], Connection]) -> None:
        self._tls = tls
        self._make = make
        loop = asyncio.get_running_loop()
        #: Done when there is something in `unread`, or never will be.
        self.first: asyncio.Future[None] = loop.create_future()
        self.lost: asyncio.Future[None] = loop.create_future()
        self.unread = bytearray()
        self.is_refused = False

    @property
    def is_plain(self) -> bool:
        """True if it begins as a request does: with a method, or the preface of HTTP/2."""
        return self.unread[:1].isupper()

    def connection_made(self, transport: Any) -> None:
        self._tls.begin(transport, self, self._make)

    def data_received(self, data: bytes) -> None:
        if not self.is_refused:
            self.unread += data
        _finish(self.first)

    def eof_received(self) -> bool:
        # who has sent all of a request reads the answer
        return self.is_plain and not self.is_refused

    def connection_lost(self, exc: Exception | None) -> None:
        _finish(self.lost)
        _finish(self.first)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class _Early(asyncio.Protocol):
    """Keeps what comes between the end of the handshake and the next turn of the loop."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.has_ended = False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def eof_received(self) -> bool:
        self.has_ended = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.has_ended = True


def of(settings: dict[str, Any]) -> Tls | None:
    """Return the TLS settings; None if connections are plain."""
    return Tls(settings) if settings["http_use_ssl"] else None
