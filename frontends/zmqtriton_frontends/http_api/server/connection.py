"""One client's connection: the socket around http1, and its deadlines.

One request after the other is read and answered; later requests wait. While many bytes wait, or the
client does not read its responses, the socket is not read. Inferences are answered here
(inference_exchange.py), all other requests by the Falcon application (asgi_exchange.py).
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from zmqtriton_floor.errors import NO_MEMORY
from zmqtriton_frontends import http1
from zmqtriton_frontends.access.bearer_tokens import authorization_in
from zmqtriton_frontends.http2 import frames
from zmqtriton_frontends.http_api.asgi import problems
from zmqtriton_frontends.http_api.inference import json_documents
from zmqtriton_frontends.http_api.inference.heads import InferenceHead
from zmqtriton_frontends.http_api.server.asgi_exchange import AsgiExchange
from zmqtriton_frontends.http_api.server.channel import (
    Channel,
    Exchange,
    acknowledged_bytes,
    by_status,
)
from zmqtriton_frontends.http_api.server.inference_exchange import ConnectionSink, InferenceExchange
from zmqtriton_frontends.http_api.server.inference_heads import InferenceHeads
from zmqtriton_frontends.inference.catalogue import STOPPING
from zmqtriton_frontends.inference.connected_client import ConnectedClient
from zmqtriton_frontends.process.ledger import Application, Ledger, Share, release
from zmqtriton_frontends.process.turns import Turns
from zmqtriton_frontends.serving.connections import IsMeant
from zmqtriton_frontends.tensors.arena_body import NOTHING

#: Seconds from the first byte of a request to the end of its headers.
HEADERS_WITHIN_S = 9.0
#: Seconds from the connection, or the last answer, to the first byte of a request.
SILENT_S = 75.0
#: Seconds that a client has to read its answer if its request was not read to its end.
_LINGER_S = 2.0
#: Bytes of one client that may wait unread while its request is answered.
_MAX_HELD_BYTES = 64 << 10
#: Seconds that a server that ends waits for the next request of a sequence that has begun late.
_BETWEEN_REQUESTS_S = 5.0


class HttpHost(Protocol):
    """The common part of all connections of a process."""

    ledger: Ledger
    turns: Turns
    #: The next answer on each connection is its last, unless a sequence is open there; and later
    #: in any case.
    is_leaving: bool
    is_ending: bool

    def now(self) -> float:
        """Return the time, in seconds."""

    def add(self, connection: HttpConnection, /) -> None:
        """Add a new connection."""

    def remove(self, connection: HttpConnection, /) -> None:
        """Forget a connection that is closed."""


class HttpConnection(asyncio.Protocol):
    def __init__(
        self,
        host: HttpHost,
        application: Application,
        inferences: InferenceHeads | None = None,
        below: Any = None,
    ) -> None:
        """Set up; without `inferences` the application answers every request.

        `below` sends the bytes that the future transport encrypts; None if that sends by itself.
        """
        self._host = host
        self._application = application
        self._inferences = inferences
        self._reader = http1.RequestReader()
        self.exchange: Exchange | None = None
        #: The last head, its meaning as an inference, and the edition of that reading.
        self._seen: tuple[http1.Head | None, InferenceHead | None, int] = (None, None, 0)
        self.channel: Channel
        self._below = below
        self.received_bytes = 0
        self.requests = 0
        #: Received bytes wait for the client's turn at the loop.
        self._has_place = False
        #: Receiver in place of this; made for the first large body.
        self._body_receiver: BodyReceiver | None = None
        #: The answer that is being written is the last.
        self._is_last = False
        #: `is_resting`: a protocol has taken over, and nothing is under way.
        self.is_closed = self._is_leaving = self.is_resting = False
        #: Times, 0 if not set: since when it is idle, since when a head is coming, since when it
        #: closes; and when it was answered last.
        self._idle_since = self._head_since = self._closing_since = self.answered_at = 0.0
        #: Time since when an announced body has not begun to come, while the process ends; or 0.
        self._unsent_since = 0.0
        self.client: ConnectedClient
        #: Share for unsent and unread bytes of this client that no exchange has booked.
        self._waiting: Share | None = None

    # ---------------------------------------------------------------- the loop

    def connection_made(self, transport: Any) -> None:
        self.channel = Channel(transport, self._below)
        self._idle_since = self._host.now()
        channel, reader = self.channel, self._reader
        self.client = ConnectedClient(
            self._host.ledger,
            self._host.turns,
            channel.info,
            moved=lambda: self.received_bytes + acknowledged_bytes(channel.info("socket")),
            owes=lambda: bool(channel.unsent_bytes) or not reader.is_whole,
            end=channel.abort,
        )
        self._host.add(self)

    def connection_lost(self, error: BaseException | None) -> None:
        self.is_closed = True
        self._host.remove(self)
        self._end_exchange()
        self._body_receiver = None
        release(self._waiting)
        self.client.leave()

    def eof_received(self) -> bool:
        """Handle the client's end of input; return True if it may still read a response.

        The client has left, or closed only its half. A client that has left resets the connection
        when it gets data; all others ignore an interim response.
        """
        exchange, head = self.exchange, self._reader.head
        if (
            exchange is None
            or head is None
            or exchange.has_begun_answer
            or not (self._reader.is_whole and head.minor_version and self.channel.can_write_eof)
        ):
            return False
        self.channel.write(http1.CONTINUE)
        self.channel.half_close()
        return True

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        self.received_bytes += len(data)
        if self._closing_since:
            return  # the last answer was given
        reader.held += data
        if reader.head is not None or (self.channel.unread is None and not self._has_place):
            self._read()
        if len(reader.held) > _MAX_HELD_BYTES:
            self.channel.pause_reading()

    def room(self) -> memoryview | None:
        """Return memory for the next bytes of a body; an empty view if data_received() takes them.

        None if no body is being received.
        """
        reader, exchange = self._reader, self.exchange
        if reader.is_whole:
            return None
        arena_body = None if exchange is None else exchange.arena_body
        return NOTHING if arena_body is None or reader.held else arena_body.room()

    def filled(self, size: int) -> None:
        """Pass on bytes of a body that were received into room()."""
        self.received_bytes += size
        self._reader.skip(size)
        exchange, is_last = self.exchange, self._reader.is_whole
        assert exchange is not None, "it has the room"
        arena_body = exchange.arena_body
        assert arena_body is not None, "it is the room"
        arena_body.filled(size)
        if is_last or arena_body.held_bytes:
            exchange.body_received(is_last=is_last)

    def pause_writing(self) -> None:
        self.channel.fill()

    def resume_writing(self) -> None:
        self.channel.empty()
        self._go_on_soon()

    # ------------------------------------------------------------- the requests

    def _read(self) -> None:
        reader = self._reader
        is_new = reader.head is None
        if reader.is_whole and not is_new:
            return
        try:
            body = reader.read()
            if body is None:
                if reader.held and not self._head_since:
                    self._head_since = self._host.now()
            elif is_new:
                self._begin(body)
            elif self.exchange is not None and (body or reader.is_whole):
                self.exchange.receive(body, is_last=reader.is_whole)
        except http1.Refused as refused:
            self.refuse(refused.status, refused.text)
        except MemoryError:
            self._end(503, NO_MEMORY)

    def _begin(self, body: bytes) -> None:
        """Begin the exchange of a request, with the part of its body that has come."""
        reader, host = self._reader, self._host
        head = reader.head
        assert head is not None, "it was read"
        self._head_since = 0.0
        self.requests += 1
        inferences, (seen, inference, edition) = self._inferences, self._seen
        if inferences is not None and (seen is not head or edition != inferences.edition):
            inference = inferences.read(head, self.client.place)
            if inference is None or inference.refusal is None:  # each refusal is one of its own
                self._seen = head, inference, inferences.edition
        exchange: Exchange
        if inference is None or inferences is None:
            exchange = AsgiExchange(self, head, self._application, host.ledger, host.turns)
        elif len(body) == inference.unbooked_bytes:
            self.exchange = sink = ConnectionSink(self, inferences.inference, inference)
            inferences.inference.begin(sink, body)
            return
        else:
            exchange = InferenceExchange(self, inferences, inference)
            if inference.is_large and self._body_receiver is None:
                self._body_receiver = BodyReceiver(self)
                self.channel.set_protocol(self._body_receiver)
        self.exchange = exchange
        if head.expects_continue and not (body or reader.held):
            exchange.say_continue()
        if body or reader.is_whole:
            exchange.receive(body, is_last=reader.is_whole)

    def answered(self) -> None:
        """End the exchange, whose answer was written, and go on with the next request."""
        self.exchange = None
        reader = self._reader
        if self._is_last:
            self.close(is_amid_request=not reader.is_whole or bool(reader.held))
            return
        reader.head = None
        self._idle_since = self.answered_at = self._host.now()
        if self.channel.is_half_closed and not reader.held:
            self.close()
        elif reader.held or self.channel.is_paused:
            self._go_on_soon()

    def _go_on_soon(self) -> None:
        # in another turn of the loop, so that others are not kept waiting
        if not self._has_place:
            self._has_place = True
            asyncio.get_running_loop().call_soon(self.client.take_turn, self._go_on)

    def _go_on(self) -> None:
        self._has_place = False
        if self.is_closed or self._closing_since or self.channel.unread is not None:
            return
        if self.exchange is None and self._reader.held:
            self._read()
        if len(self._reader.held) <= _MAX_HELD_BYTES:
            self.channel.resume_reading()

    # -------------------------------------------------------------- for exchanges

    @property
    def last_fields(self) -> bytes:
        """Return the header fields of every response, which also tell if the connection ends."""
        reader = self._reader
        head = reader.head
        assert head is not None, "there is something to answer"
        host = self._host
        is_leaving = host.is_leaving and (host.is_ending or not self.client.sequences)
        self._is_last = (
            self._is_leaving or is_leaving or not head.keeps_alive or not reader.is_whole
        )
        if self._is_last:
            return http1.date() + http1.CLOSE
        return http1.date() if head.minor_version else http1.date() + http1.KEEP_ALIVE

    def leave(self) -> None:
        """Let the next response be the last one."""
        self._is_leaving = True

    def hand_over(self, protocol: asyncio.Protocol) -> None:
        """Give the socket to another protocol: no HTTP follows."""
        begun, self._reader.held = self._reader.held, b""
        self.is_resting = True
        self.channel.set_protocol(protocol)
        self.channel.resume_reading()
        protocol.data_received(begun)

    def rest(self, is_resting: bool) -> None:
        """Record whether the protocol that has taken over is idle.

        An idle connection may be closed to make room for others.
        """
        if is_resting and not self.is_resting:
            self.answered_at = self._host.now()
        self.is_resting = is_resting

    # ----------------------------------------------------------------- the end

    def authorizations(self) -> list[list[str]]:
        """Return the `authorization` values of the client's last request."""
        head = self._reader.head or self._seen[0]
        if head is None:
            return []
        fields = {name: value.decode("latin-1") for name, value in head.fields}
        return [authorization_in(fields.get)]

    def throw_out(self, is_meant: IsMeant) -> None:
        """Close now, even amid a request, a stream, or another protocol: it has one client."""
        self.channel.abort()

    def refuse(self, status: int, text: str) -> None:
        """Answer bytes that are no request, and end the connection."""
        exchange = self.exchange
        if exchange is not None and exchange.has_begun_answer:
            self.channel.abort()
            return
        self._end_exchange()
        self._say(status, json_documents.write({"error": text}))

    def end_if_still(self, now: float, still_s: float) -> None:
        """End the connection if it has been idle for this time.

        A request whose body has not begun to arrive for as long is refused.
        """
        if self._closing_since:
            return
        head = self._reader.head
        if head is not None and self._reader.missing_bytes == (head.body_bytes or -1):
            self._unsent_since = self._unsent_since or now
            if now - self._unsent_since > still_s:
                self._end_exchange()
                self._say(503, json_documents.write({"error": STOPPING}))
            return
        self._unsent_since = 0.0
        since = max(self._head_since, self._idle_since)
        if self.client.sequences:
            still_s = max(still_s, _BETWEEN_REQUESTS_S)
        if self.exchange is None and self.is_idle and not self._has_place and now - since > still_s:
            self.close()

    def _say(self, status: int, body: bytes) -> None:
        if self._closing_since:
            return  # the last answer was given
        by_status[status] += 1
        if status == 505 and not self.requests:  # a client of HTTP/2 reads frames alone
            answer = frames.settings({}) + frames.goaway(0, frames.HTTP_1_1_REQUIRED, body)
        else:
            rows = [http1.status_line(status), b"content-type: application/json\r\n"]
            rows += [f"{name}: {value}\r\n".encode() for name, value in problems.headers(status)]
            rows += [b"content-length: %d\r\n" % len(body), http1.date(), http1.CLOSE, b"\r\n"]
            answer = b"".join((*rows, body))
        self.channel.write(answer)
        self.close(is_amid_request=True)

    def _end_exchange(self) -> None:
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.cancel()

    def close(self, *, is_amid_request: bool = False) -> None:
        """Close once all is written. Amid a request the client can still read the response."""
        if self._closing_since or self.is_closed:
            return
        self._closing_since = self._host.now()
        self._end_exchange()
        self.channel.close(is_amid_request=is_amid_request)

    def _end(self, status: int, text: str) -> None:
        if self.channel.unsent_bytes:
            self.channel.abort()
        else:
            self.refuse(status, text)

    # ------------------------------------------------------------- the deadlines

    def _book(self, waiting: int) -> None:
        """Account for received bytes that no exchange accounts for."""
        if waiting and self._waiting is None:
            self._waiting = Share(self._host.ledger.answers, self.client)
        if self._waiting is not None:
            self._waiting.hold(waiting)

    @property
    def is_idle(self) -> bool:
        """True if the connection has no open request.

        At most the beginning of a request's headers has come, and all responses are sent; or the
        protocol that has taken over is idle.
        """
        return (self.exchange is None or self.is_resting) and not self.channel.unsent_bytes

    def check(self, now: float) -> None:
        """End the connection if its client stalls; called once a second."""
        unsent = self.channel.unsent_bytes
        if self._closing_since and not unsent:
            if now - self._closing_since > _LINGER_S:
                self.channel.abort()
            return
        if unsent:
            doing, done = "sending", acknowledged_bytes(self.channel.info("socket"))
        elif not self._reader.is_whole:
            doing, done = "receiving", self.received_bytes
        else:
            doing, done = "", 0
        held = 0 if self.exchange is None else self.exchange.held_bytes
        self._book(max(0, unsent - held) + len(self._reader.held))
        if self.client.progress.is_stalled(now, doing, done, max(held, unsent)):
            self._end(408, "Request Timeout")
        if doing or self.exchange is not None:
            return
        if self._head_since:
            if now - self._head_since > HEADERS_WITHIN_S:
                self._end(408, "Request Timeout")
        elif now - self._idle_since > SILENT_S:
            self.close()


#: Bytes that are received at once between bodies: enough for the head of a request, and not much
#: of a large body behind it.
_HEAD_BYTES = 16 << 10
#: Least rest of a body, in bytes, that is received into its own place.
_WORTH_BYTES = 16 << 10
# One for all connections: what is received into it is taken out in the same turn of the loop.
_buffer = memoryview(bytearray(256 << 10))
_head_buffer = _buffer[:_HEAD_BYTES]


class BodyReceiver(asyncio.BufferedProtocol):
    """Receives for a connection with large bodies: from the socket straight to their place.

    It replaces the connection as the loop's protocol from the first large body on, since the
    connection would copy the body.
    """

    def __init__(self, receiver: HttpConnection) -> None:
        self._receiver = receiver
        self._is_filling = False

    def get_buffer(self, sizehint: int) -> memoryview:
        room = self._receiver.room()
        self._is_filling = room is not None and len(room) >= _WORTH_BYTES
        if room is None:
            return _head_buffer
        return room if self._is_filling else _buffer

    def buffer_updated(self, size: int) -> None:
        if self._is_filling:
            self._receiver.filled(size)
        else:
            self._receiver.data_received(bytes(_buffer[:size]))

    # --------------------------------------------------- passed on to the connection

    def eof_received(self) -> bool | None:
        return self._receiver.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._receiver.connection_lost(error)

    def pause_writing(self) -> None:
        self._receiver.pause_writing()

    def resume_writing(self) -> None:
        self._receiver.resume_writing()
