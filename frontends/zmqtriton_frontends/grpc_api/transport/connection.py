"""One client's connection: the socket around http2.connection, and its timers.

Passes bytes from the loop to the state machine and back; the output of one turn of the loop is sent
at once.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

from zmqtriton_floor.settings.frontends import Grpc
from zmqtriton_frontends.gateway.gateway import is_followed
from zmqtriton_frontends.grpc_api.transport.account import HIGH_WATER, Account
from zmqtriton_frontends.grpc_api.transport.call_headers import RpcHeaders
from zmqtriton_frontends.grpc_api.transport.call_kinds import begin_of
from zmqtriton_frontends.grpc_api.transport.inbox import Inbox
from zmqtriton_frontends.grpc_api.transport.lifecycle import RpcLifecycle
from zmqtriton_frontends.http2 import frames
from zmqtriton_frontends.http2.connection import Begin, Http2Connection, Rules
from zmqtriton_frontends.http2.header_blocks import Headers
from zmqtriton_frontends.inference.connected_client import ConnectedClient
from zmqtriton_frontends.process.ledger import Share
from zmqtriton_frontends.process.room import Room
from zmqtriton_frontends.process.turns import Turns
from zmqtriton_frontends.serving.connections import IsMeant

#: Seconds that a client has to send its preface and settings.
_INTRODUCTION_S = 10.0
#: Further seconds that it has to make its first call.
_FIRST_CALL_S = 300.0
#: Seconds between two looks whether a client goes on with what waits for it.
_LOOK_S = 5.0
#: Unread bytes of a client at which it is read from again, after it had more than HIGH_WATER.
_LOW_WATER = 1 << 16
#: Limits of the transport's buffer at which it reports the first byte that a client leaves unread.
_FIRST_BYTE, _ALL_READ = 1, 0
#: Largest output, in bytes, whose pieces are joined.
_JOINED_BYTES = 128 * 1024
#: Bytes that are sent before others have their turn.
_AT_ONCE_BYTES = 4 << 20
#: Pieces that the kernel takes at once.
_MAX_PIECES = 1024
#: Seconds that a client has to confirm that it has read the GOAWAY, before new calls are refused.
_LEAVE_S = 5.0
#: Seconds that a new client has for its first call before it gets a GOAWAY: gRPC's own clients
#: lose a call that they are about to make.
_FRESH_S = 1.0
#: Seconds that a client has, after a sequence, to begin another one before it gets a GOAWAY.
_BETWEEN_S = 0.5
#: Seconds that a client has to read the last bytes of a connection that is closed; the rest is
#: lost.
_CLOSE_S = 5.0
#: Share of its age that a connection may live longer or shorter, so that not all clients come back
#: at once.
_AGE_SPREAD = 0.1
#: Least data, in bytes, that is received into its own place: to copy less costs less than one more
#: turn.
_WORTH_BYTES = 128 * 1024
#: Bytes that are received at once amid large messages: enough for the header of a frame, and not
#: much of what follows it.
_HEADER_BYTES = 4096
#: Bytes that are received at once while others wait, too.
_CROWDED_BYTES = 64 * 1024


class GrpcHost(Protocol):
    """The server, as its connections use it."""

    answering: RpcLifecycle
    compression: str
    rules: Rules
    settings: Grpc
    #: Buffer of all connections: what is received into it is used at once.
    buffer: memoryview
    turns: Turns
    #: The open connections.
    room: Room[ClientConnection]

    def admit(self, connection: ClientConnection, /) -> bool:
        """Count a connection that speaks HTTP/2; False if there are too many."""

    def read_opening(self, headers: Headers, /) -> RpcHeaders:
        """Read the headers that begin a call."""


class ClientConnection(asyncio.BufferedProtocol):
    def __init__(self, server: GrpcHost) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        #: Function that has the output sent in the next turn of the loop, if any is left then.
        self._flush_soon = partial(self._loop.call_soon, self._flush)
        self._transport: Any = None
        self._http2: Http2Connection
        #: The socket's descriptor; -1 if what is written has to be encrypted.
        self._descriptor = -1
        #: Data is received where a stream wants it; or was, and may be again.
        self._is_filling = False
        self._was_filling = False
        self._is_closed = False
        self._timers: dict[str, asyncio.TimerHandle] = {}
        #: Set if anything has come since the last look; and the number of pings that were sent
        #: since data were.
        self._was_heard = True
        self._pings = 0
        #: Value of `sent_count` at the last of these pings.
        self._sent_count = 0
        self._account: Account
        self.client: ConnectedClient
        self.received_bytes = 0
        #: The transport has bytes that the client has not read.
        self._is_backed_up = False
        #: Set while something waits for the client, and a timer looks whether that goes on.
        self._is_watched = False
        #: Set once the client is to go elsewhere, as soon as it has ended its sequences.
        self._is_to_leave = False
        self._made_s = 0.0
        self._inbox: Inbox

    # ---------------------------------------------------------------- the loop

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._made_s = self._loop.time()
        server, answering = self._server, self._server.answering
        self.client = ConnectedClient(
            answering.ledger,
            server.turns,
            transport.get_extra_info,
            moved=lambda: (
                self.received_bytes
                + self._http2.prepared_bytes
                - int(transport.get_write_buffer_size())
            ),
            owes=lambda: not self._inbox.kept and self._account.waits_for(self._http2),
            end=self.abort,
            sequences_ended=lambda: self.leave() if self._is_to_leave else None,
        )
        self._account = Account(self.client, answering.max_message)
        self._http2 = Http2Connection(
            self._read_opening,
            self._flush_soon,
            server.rules,
            admits=self._account.admits_streams,
            keeps=self._account.headers.change,
        )
        share = Share(answering.ledger.requests, self.client)
        self._inbox = Inbox(self.client, share, self._http2, transport, self._flush)
        secured = transport.get_extra_info("ssl_object")
        if secured is None:
            self._descriptor = transport.get_extra_info("socket").fileno()
        is_http2 = secured is None or secured.selected_alpn_protocol() == "h2"
        if not is_http2 or not server.admit(self):
            transport.abort()
        else:
            transport.set_write_buffer_limits(_FIRST_BYTE, _ALL_READ)
            self._later("introduction", _INTRODUCTION_S, self._give_up)
            self._later_ages()
            self._flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        self._is_filling = False
        if self._http2.reading.data_left >= _WORTH_BYTES:
            room = self._http2.room()
            self._is_filling = len(room) >= _WORTH_BYTES
            if self._is_filling:
                return room
        buffer = self._server.buffer
        if self._was_filling:
            # with large messages as little as possible is read that would have to be copied
            return buffer[:_HEADER_BYTES]
        return buffer[:_CROWDED_BYTES] if self._server.turns.is_crowded else buffer

    def buffer_updated(self, size: int) -> None:
        self._was_heard = True
        self._http2.is_attended = True
        self.received_bytes += size
        if self._is_filling:
            self._was_filling = True
            self._http2.filled(size)
        else:
            self._inbox.take(self._server.buffer[:size])
            if size == _HEADER_BYTES:  # and more is there, of something else
                self._was_filling = False
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._server.room.remove(self)
        self._http2.lose()
        self._inbox.close()
        self._account.close()

    def pause_writing(self) -> None:
        self._is_backed_up = True
        transport = self._transport
        # less than there is: over TLS resume_writing() would come at once, and have this called
        low = min(_LOW_WATER, max(0, transport.get_write_buffer_size() - 1))
        transport.set_write_buffer_limits(HIGH_WATER, low)

    def resume_writing(self) -> None:
        self._is_backed_up = False
        # and so pause_writing() is called again at once if something is left
        self._transport.set_write_buffer_limits(_FIRST_BYTE, _ALL_READ)
        if self._http2.is_paused:
            self._http2.is_paused = False
            self._inbox.resume()
        self._http2.go_on()
        self._flush()

    # --------------------------------------------------------------- the output

    def _flush(self) -> None:
        http2, sent = self._http2, 0
        http2.is_attended = True
        while http2.out and sent < _AT_ONCE_BYTES and not self._is_closed:
            size = http2.out_bytes
            sent += size
            out = http2.take_output()
            if size > _JOINED_BYTES:
                out = self._send(out)
            if out:
                self._transport.write(b"".join(out))
            if http2.turns:
                http2.go_on()
        http2.is_attended = False
        if http2.out and not self._is_closed:
            # a client that reads as fast as this writes would keep all others waiting
            self._flush_soon()
            return
        account, waiting = self._account, http2.waiting_bytes
        if (
            waiting != account.answers.held
            or self._is_backed_up
            or http2.kept_bytes > account.streams.held
        ):
            account.book(http2, self._transport)
        if http2.is_closing and http2.is_done and not self._is_closed:
            self._close()
        elif not self._is_watched and (
            http2.reading.is_amid_frame
            or waiting
            or account.requests.share.held
            or account.streams.held
        ):
            self._watch()

    def _send(self, out: list[bytes | memoryview]) -> list[bytes | memoryview]:
        """Give output to the kernel without a copy, as much as the kernel accepts at once.

        The transport gets a copy of the rest: the original would occupy others' memory as long as a
        client does not read.
        """
        transport = self._transport
        if self._descriptor < 0 or transport.is_closing() or transport.get_write_buffer_size():
            return out
        try:
            sent = os.writev(self._descriptor, out[:_MAX_PIECES])
        except OSError:  # there is no room, or the transport will get it, too
            return out
        for index, piece in enumerate(out):
            if sent < len(piece):
                return [memoryview(piece)[sent:], *out[index + 1 :]]
            sent -= len(piece)
        return []

    def _close(self) -> None:
        if not self._transport.is_closing():
            self._transport.close()
            self._later("close", _CLOSE_S, self._transport.abort)

    def abort(self) -> None:
        """Close at once, and drop unsent bytes."""
        self._transport.abort()

    # --------------------------------------------------------------- the calls

    def _read_opening(self, headers: Headers) -> Begin:
        server, info = self._server, self._transport.get_extra_info
        opening = server.read_opening(headers)
        return begin_of(opening, server.answering, self._account, server.compression, info)

    # --------------------------------------------------------------- the timers

    def _later(self, name: str, seconds: float, then: Any) -> None:
        before = self._timers.get(name)
        if before is not None:
            before.cancel()
        self._timers[name] = self._loop.call_later(seconds, then)

    def _give_up(self) -> None:
        if not self._http2.has_begun:
            self._transport.abort()
        else:
            self._later("first call", _FIRST_CALL_S, self._leave_unused)

    def _leave_unused(self) -> None:
        if not self._http2.stream_count:
            self.leave()

    def _watch(self) -> None:
        """End the connection of a client without progress on unread bytes, or check later."""
        sent = self._http2.prepared_bytes - self._transport.get_write_buffer_size()
        if not self._inbox.kept and self._account.is_stalled(
            self._loop.time(), self._http2, self.received_bytes, sent
        ):
            self._transport.abort()
            return
        account = self._account
        account.expire_silent(self._loop.time(), self._http2)
        account.note_streams(self._http2)
        self._is_watched = bool(
            account.owes(self._http2) or account.requests.share.held or account.streams.held
        )
        if self._is_watched:
            self._later("stall", _LOOK_S, self._watch)

    def _later_ages(self) -> None:
        age_ms = self._server.settings.max_connection_age
        if age_ms:
            spread = 1 + random.uniform(-_AGE_SPREAD, _AGE_SPREAD)
            self._later("age", age_ms / 1000 * spread, self.leave)
        self._later_keepalive()

    def _later_keepalive(self) -> None:
        self._later("keepalive", self._server.settings.keepalive_time / 1000, self._keep_alive)

    def leave(self, *, after_sequences: bool = False) -> None:
        """Send the client a GOAWAY; open calls are finished.

        With `after_sequences` only once the client has no open sequence.
        """
        is_first, self._is_to_leave = not self._is_to_leave, True
        sequences = self.client.sequences
        if after_sequences and sequences:
            return
        if after_sequences and sequences.had_any and is_first:
            # the next one may be on its way, and its later requests would go elsewhere
            self._later("sequence", _BETWEEN_S, partial(self.leave, after_sequences=True))
            return
        sequences.is_over = is_followed(self._server.answering.gateway)
        fresh_s = _FRESH_S - (self._loop.time() - self._made_s)
        if fresh_s > 0 and not self._http2.stream_count:
            self._later("fresh", fresh_s, self.leave)
            return
        self._http2.leave()
        self._later("leave", _LEAVE_S, self._refuse_streams)
        grace_ms = self._server.settings.max_connection_age_grace
        if grace_ms:
            self._later("grace", grace_ms / 1000, self.end)
        self._flush()

    def _refuse_streams(self) -> None:
        self._http2.refuse_streams()
        self._flush()

    @property
    def is_idle(self) -> bool:
        return not self._http2.streams

    @property
    def answered_at(self) -> float:
        return 1.0 if self._http2.sent_count else 0.0  # the room looks who goes on

    def end(self, reason: bytes = b"max_age") -> None:
        """End the connection, with all its requests in flight."""
        self._http2.end(frames.NO_ERROR, reason)
        self._flush()

    @property
    def requests(self) -> int:
        return self._http2.stream_count

    def authorizations(self) -> list[Sequence[str]]:
        """Return the `authorization` values of each open call."""
        return [stream.authorization for stream in self._http2.streams.values()]

    def throw_out(self, is_meant: IsMeant) -> None:
        """End the calls that `is_meant` selects; close the connection if it has no others.

        Clients in one process, or behind one proxy, share a connection.
        """
        streams = [*self._http2.streams.values()]
        meant = [stream for stream in streams if is_meant(stream.authorization)]
        if len(meant) == len(streams):
            self.end(b"ended_by_operator")
            return
        for stream in meant:
            self._http2.reset(stream, frames.CANCEL)
            stream.on_reset()
        self._flush()

    def _keep_alive(self) -> None:
        """Ping a client that has been silent for long."""
        settings, http2 = self._server.settings, self._http2
        may_ping = settings.keepalive_permit_without_calls or bool(http2.streams)
        limit = settings.http2_max_pings_without_data  # 0 is none
        if http2.sent_count != self._sent_count:
            self._pings = 0
        if not self._was_heard and may_ping and (self._pings < limit or not limit):
            self._pings += 1
            self._sent_count = http2.sent_count
            http2.write(frames.ping(b"keepaliv"))
            self._flush()
            self._later("keepalive", settings.keepalive_timeout / 1000, self._judge_silence)
        else:
            self._was_heard = False
            self._later_keepalive()

    def _judge_silence(self) -> None:
        if self._was_heard or self._inbox.kept:  # its answer may be among what waits for a turn
            self._was_heard = False
            self._later_keepalive()
        else:
            self._http2.end(frames.NO_ERROR, b"keepalive_timeout")
            self._flush()
            self._transport.abort()
