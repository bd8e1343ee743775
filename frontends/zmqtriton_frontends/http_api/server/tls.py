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

    def begin(self, plain: Any, unread: bytearray, make: Callable[[], Connection]) -> None:
        task = asyncio.ensure_future(self._secure(plain, unread, make))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _secure(self, plain: Any, unread: bytearray, make: Callable[[], Connection]) -> None:
        loop, early = asyncio.get_running_loop(), _Early()
        upgrade = asyncio.ensure_future(
            loop.start_tls(
                *(plain, early, self.context),
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_WITHIN_S,
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


def _feed(protocol: Any, data: bytearray) -> None:
    """Give a protocol what somebody else has read."""
    while data:
        room = protocol.get_buffer(len(data))
        size = min(len(room), len(data))
        room[:size] = data[:size]
        del data[:size]
        protocol.buffer_updated(size)


class _Unsecured(asyncio.Protocol):
    """A connection that nobody has begun to secure, which takes a turn of the loop."""

    def __init__(self, tls: Tls, make: Callable[[], Connection]) -> None:
        self._tls = tls
        self._make = make
        self._data = bytearray()

    def connection_made(self, transport: Any) -> None:
        self._tls.begin(transport, self._data, self._make)

    def data_received(self, data: bytes) -> None:
        self._data += data


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
