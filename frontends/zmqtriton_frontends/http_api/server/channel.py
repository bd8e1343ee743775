"""The socket of one connection, and the interface between the connection and the exchange on it.

An exchange is one request and its response: an inference, or a request of the Falcon application.
The connection gives it the body as it comes; the exchange writes to the connection's channel, and
notifies the connection when the whole response is written. The channel keeps the unsent bytes, and
pauses the reading of the socket.

The kernel reports the acknowledged bytes of clients that may have stopped reading, or left.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections import defaultdict
from typing import Any, Protocol

from zmqtriton_frontends.inference.connected_client import ConnectedClient
from zmqtriton_frontends.process.client_progress import limit_unsent_bytes
from zmqtriton_frontends.process.futures import wake
from zmqtriton_frontends.tensors.arena_body import ArenaBody

#: Bytes that a client may leave unread before the writer waits.
_HIGH_WATER_BYTES = 64 << 10
#: The same for a stream, whose pieces may be small; a chunk may exceed it.
_STREAM_BYTES = 16 << 10
#: Seconds within which a client on this machine shows that it has left; and seconds between two
#: looks at others, which may take longer.
_RESET_WITHIN_S, _LOOK_S = 0.05, 1.0
#: Position of tcpi_bytes_acked in the kernel's tcp_info, since Linux 4.1, and the bytes up to its
#: end.
_ACKNOWLEDGED_AT, _INFO_BYTES = 120, 128
#: The state at its beginning: TCP_CLOSE.
_CLOSED = 7
#: Number of answers by status.
by_status: defaultdict[int, int] = defaultdict(int)


def acknowledged_bytes(own: Any) -> int:
    """Return the number of bytes that the client has acknowledged; 0 without a descriptor."""
    (acknowledged,) = struct.unpack_from("=Q", _info(own), _ACKNOWLEDGED_AT)
    return int(acknowledged)


def _info(own: Any) -> bytes:
    try:
        copy = os.dup(own.fileno())
    except OSError:
        return bytes(_INFO_BYTES)
    with socket.socket(fileno=copy) as connection:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    return info.ljust(_INFO_BYTES, b"\0")


class Channel:
    def __init__(self, transport: Any, below: Any) -> None:
        self._transport = transport
        #: Transport that sends what the other one has encrypted; None if that sends by itself.
        self._below = below
        #: Nothing is read of the client for now.
        self.is_paused = False
        #: The client sends no more, and may read.
        self.is_half_closed = False
        #: The connection ends by itself, within moments.
        self.is_closing = False
        #: The client does not read what it is sent; done when it does.
        self.unread: asyncio.Future[None] | None = None
        transport.set_write_buffer_limits(_HIGH_WATER_BYTES)
        self.write = transport.write
        self.write_all = transport.writelines
        self.abort = transport.abort
        self.info = transport.get_extra_info
        self.set_protocol = transport.set_protocol

    # ---------------------------------------------------------------- a client that does not read

    @property
    def can_write_eof(self) -> bool:
        """True if each half can be closed alone, as TLS does not allow."""
        return bool(self._transport.can_write_eof())

    @property
    def is_lost(self) -> bool:
        """True if nothing can be sent any more, which uvloop's transports would refuse."""
        return bool(self._transport.is_closing())

    @property
    def unsent_bytes(self) -> int:
        size: int = self._transport.get_write_buffer_size()
        return size if self._below is None else size + int(self._below.get_write_buffer_size())

    def fill(self) -> None:
        """Let writers wait, because too much is unread."""
        self.unread = asyncio.get_running_loop().create_future()

    def empty(self) -> None:
        """Let writers continue, because most data were read."""
        unread, self.unread = self.unread, None
        wake(unread)

    async def drain(self) -> None:
        """Wait until the client has read most of the unread bytes."""
        if self.unread is not None:
            await self.unread

    def begin_stream(self) -> None:
        """Buffer few unread bytes from now on: the source of a stream waits for its client."""
        limit_unsent_bytes(self.info("socket"))
        self._transport.set_write_buffer_limits(_STREAM_BYTES)

    # ---------------------------------------------------------------- a client that is not read

    def pause_reading(self) -> None:
        if not self.is_paused and not self._transport.is_closing():
            self.is_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self.is_paused and not self._transport.is_closing():
            self.is_paused = False
            self._transport.resume_reading()

    # --------------------------------------------------------------------------------- the end

    def half_close(self) -> None:
        """Check from now on whether a client that has closed its half has left."""
        self.is_half_closed = True
        asyncio.get_running_loop().call_later(_RESET_WITHIN_S, self._end_if_reset)

    def _end_if_reset(self) -> None:
        if self._transport.is_closing():
            return  # it may have no socket any more
        if _info(self.info("socket"))[0] == _CLOSED:  # both ways
            self.abort()
        else:
            # the loop watches nothing of a socket from which all was read
            asyncio.get_running_loop().call_later(_LOOK_S, self._end_if_reset)

    def close(self, *, is_amid_request: bool) -> None:
        """Close once all is written; amid a request so that the client can read the response."""
        self.is_closing = True
        # a socket that is closed with bytes unread takes back what it has sent
        if is_amid_request and self.can_write_eof:
            self._transport.write_eof()
            self.resume_reading()
        else:
            self._transport.close()


class Exchange(Protocol):
    __slots__ = ()

    has_begun_answer: bool
    #: The connection may receive the body there; None if receive() takes it.
    arena_body: ArenaBody | None = None

    @property
    def held_bytes(self) -> int:
        """Return the bytes of this process's memory that the exchange takes."""

    def say_continue(self) -> None:
        """Have a client that waits for `100 Continue` send the body."""
        raise AssertionError("the body has come")

    def receive(self, part: bytes, /, *, is_last: bool) -> None:
        """Take a part of the body; begin to answer after the last one."""
        raise AssertionError("the body has come")

    def body_received(self, *, is_last: bool) -> None:
        """Count a part of the body in `arena_body`; begin to answer after the last one."""
        raise AssertionError("receive() takes it")

    def cancel(self) -> None:
        """Cancel the request, whose client has left."""


class Owner(Protocol):
    """The connection, as its exchange uses it."""

    channel: Channel
    exchange: Exchange | None
    is_closed: bool
    client: ConnectedClient

    @property
    def last_fields(self) -> bytes:
        """Return the header fields that every response has."""

    def answered(self) -> None:
        """End the exchange, whose response was written."""

    def leave(self) -> None:
        """Let the next response be the last one."""

    def hand_over(self, protocol: asyncio.Protocol) -> None:
        """Give the socket to another protocol: no HTTP follows."""
