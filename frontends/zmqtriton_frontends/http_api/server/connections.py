"""The open connections of one process: which are idle, which stall, and how they end.

Built on gunicorn's own protocol for ASGI, of which it reads a few private fields; nothing else in
the project knows them. It adds no work to a request.
"""

from __future__ import annotations

import asyncio
import json
import logging
import resource
from collections.abc import Mapping
from typing import Any

from gunicorn.asgi import protocol
from gunicorn.asgi.parser import PythonProtocol

from zmqtriton_floor.errors import NO_MEMORY
from zmqtriton_frontends.http_api.asgi import problems
from zmqtriton_frontends.http_api.asgi.problems import FAREWELL
from zmqtriton_frontends.http_api.asgi.request import CONNECTION, MAX_BODY_BYTES
from zmqtriton_frontends.http_api.inference.large_answer import View
from zmqtriton_frontends.http_api.server.body_receiver import BodyReceiver
from zmqtriton_frontends.http_api.server.fast_path import FastPath
from zmqtriton_frontends.http_api.server.fast_path_connection import FastPathConnection
from zmqtriton_frontends.http_api.server.header_case import Spelling
from zmqtriton_frontends.http_api.server.tcp_info import acknowledged_bytes

_log = logging.getLogger(__name__)

#: From the connection to the end of its first request's headers.
HEADERS_WITHIN_S = 9.0
#: From the connection to the first byte of a request: clients may connect ahead.
SILENT_S = 75.0
#: The time in which some bytes of a body must come, and some of an answer be read.
STALL_S = 30.0
MIN_PROGRESS_BYTES = 30 * 1024

#: For segments of shared memory, files, and connections that have yet to be accepted.
RESERVED_DESCRIPTORS = 96

_SERVER_EXITING = b'{"error":"Server exiting"}'
#: The last part of paths that infer.
_INFERENCE = ("/infer", "/generate", "/generate_stream")

# clients need not know which server this is, and which version; there is no setting for it
protocol._CACHED_SERVER_HEADER = b""


class Connection(protocol.ASGIProtocol):  # type: ignore[misc]
    """One client's connection."""

    def __init__(self, owner: Any, connections: Connections) -> None:
        super().__init__(owner)
        self._response_buffer: bytes | None = None
        self._connections = connections
        self._received = 0
        #: Whether it was sending, and how many bytes had gone, or come, at that time.
        self._progress = (False, 0)
        self._progress_at = 0.0
        self._connected_at = 0.0
        self._spelling = Spelling() if owner.keeps_spelling else None
        #: Takes what arrives, from the first large body on.
        self._filling: BodyReceiver | None = None
        shortcut: FastPath | None = owner.shortcut
        self._arrivals = FastPathConnection(self, shortcut) if shortcut is not None else None
        self._is_refusing = False
        #: Sends what the transport has encrypted; None if that sends by itself.
        self._below: Any = None

    def secured(self, plain: Any) -> None:
        """Note that the coming transport encrypts, and gives its output to this one."""
        self._below = plain

    @property
    def _unsent(self) -> int:
        size: int = self.transport.get_write_buffer_size()
        return size if self._below is None else size + int(self._below.get_write_buffer_size())

    def connection_made(self, transport: Any) -> None:
        self._progress_at = self._connected_at = self._connections.now()
        self._connections.add(self)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connections.remove(self)
        super().connection_lost(exc)
        if self._arrivals is not None:
            self._arrivals.lost()

    def data_received(self, data: bytes) -> None:
        try:
            if self._arrivals is not None:
                data = self._arrivals.take(data)
            if data:
                super().data_received(data)
        except MemoryError:
            is_amid = self.is_receiving and not self._unsent
            self._end(503 if is_amid else 0, NO_MEMORY)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._arrivals is not None:
            self._arrivals.read()

    def _keepalive_timeout(self) -> None:
        if self._arrivals is not None and not self._is_unused(self.now()):
            self._arm_keepalive_timer()
        else:
            super()._keepalive_timeout()

    def _on_body(self, chunk: bytes) -> None:
        self._received += len(chunk)
        super()._on_body(chunk)

    def _feed_callback_parser(self, data: bytes) -> Any:
        if self._spelling is not None:
            self._spelling.feed(self._callback_parser, data)
        goes_on = super()._feed_callback_parser(data)
        if goes_on and getattr(self._callback_parser, "_chunk_size", 0) > MAX_BODY_BYTES:
            self._send_error_response(400, "Invalid chunk size")
            self._close_transport()
            return False
        return goes_on

    def _is_websocket_upgrade(self, request: Any) -> bool:
        """Return False: a client that asks for a websocket gets what any other would."""
        return False

    def _on_headers_complete(self) -> Any:
        if self._spelling is not None:
            self._spelling.end(self._callback_parser)
        return super()._on_headers_complete()

    @property
    def spellings(self) -> Mapping[bytes, bytes]:
        """The header names as the client wrote them, by those in lower case.

        Only if the process keeps them.
        """
        return self._spelling.names if self._spelling is not None else {}

    def _build_http_scope(self, *request: Any) -> dict[str, Any]:
        scope: dict[str, Any] = super()._build_http_scope(*request)
        scope[CONNECTION] = self
        return scope

    def _send_body(self, body: Any, *framing: Any) -> None:
        if type(body) is View:
            if body.head:
                self._response_buffer = (self._response_buffer or b"") + body.head
            body = body.view
        super()._send_body(body, *framing)

    # ------------------------------------------------ requests that take the shortcut

    @property
    def awaits_request(self) -> bool:
        """True if gunicorn has read all that came, and nothing is in flight."""
        parser = self._callback_parser
        return (
            self._awaiting_request
            and type(parser) is PythonProtocol
            and parser._state == "request_line"
            and not parser._buffer
            and self.keeps_open
        )

    @property
    def keeps_open(self) -> bool:
        alive: bool = self.worker.alive
        return alive and not self._is_refusing

    @property
    def is_closed(self) -> bool:
        closed: bool = self._closed
        return closed

    @property
    def is_read(self) -> bool:
        """True if the client reads what it is sent."""
        return not self._flow_control.write_paused

    def now(self) -> float:
        return self._connections.now()

    def response_head(self, status: int) -> tuple[bytes, bytes]:
        """Return the beginning of a response, and its last headers."""
        line: bytes = protocol._get_cached_status_line((1, 1), status)
        date: bytes = protocol._get_cached_date_header()
        return line, date if self.keeps_open else date + b"Connection: close\r\n"

    async def write_piece(self, piece: View) -> None:
        self.transport.writelines((piece.head, piece.view))
        await self._flow_control.drain()

    def pause_reading(self) -> None:
        self._pause_reading()

    def resume_reading(self) -> None:
        self._resume_reading()

    def _is_unused(self, now: float) -> bool:
        """True if requests on the fast path have not used the connection."""
        arrivals = self._arrivals
        is_busy = arrivals is not None and arrivals.is_busy
        used_at = arrivals.used_at if arrivals is not None else 0.0
        return not is_busy and now - used_at >= self._keepalive

    # ------------------------------------------------- bodies that go elsewhere

    @property
    def has_pieces(self) -> bool:
        """True if a part of the body has arrived that the application has not received."""
        return bool(self._body_receiver.buffered)

    @property
    def is_receiving(self) -> bool:
        """True if a request has begun and is not complete."""
        receiver = self._body_receiver
        return receiver is not None and not receiver._complete

    @property
    def is_amid_body(self) -> bool:
        """True if a part of a body has come, and not all of it; asked only where fill() works."""
        parser = self._callback_parser
        has_begun = parser.is_chunked or parser._body_remaining != parser.content_length
        return self.is_receiving and has_begun

    def fill(self, view: memoryview) -> asyncio.Future[None] | None:
        """Receive the rest of the body into the view, which has its size.

        None if that is impossible.

        stop_filling() must follow. The last byte arrives in the usual way as well.
        """
        parser = self._callback_parser
        # gunicorn's own parser in C keeps its counts to itself
        is_body = type(parser) is PythonProtocol and parser._state == "body"
        if not is_body or self.has_pieces or parser._body_remaining != len(view):
            return None
        whole = self.fill_room(view)
        self._resume_reading()
        return whole

    def fill_room(self, view: memoryview) -> asyncio.Future[None]:
        """Receive likewise if gunicorn does not know the request, and will not.

        Until end_room() or until the view is full, which is told to the fast path.
        """
        if self._filling is None:
            self._filling = BodyReceiver(self)
            self.transport.set_protocol(self._filling)
        self._filling.begin(view)
        return self._filling.whole

    def end_room(self) -> int:
        """Return how much of it was not filled."""
        return self._filling.stop() if self._filling is not None else 0

    def take(self, data: bytes) -> None:
        """Take what arrives while nothing is filled."""
        had_begun = self.is_amid_body
        self.data_received(data)
        if not had_begun and self.is_amid_body and self.has_pieces:
            # the application says where the body goes before more of it is read; it reads on by
            # receiving what is here
            self._pause_reading()

    def count(self, size: int) -> None:
        self._received += size

    def filled(self, last: bytes) -> None:
        """Let the parser see one byte, and the end of the body: all of it is there."""
        if self._arrivals is not None and self._arrivals.is_receiving:
            self._arrivals.filled()
            return
        self._callback_parser._body_remaining = len(last)
        self.data_received(last)

    def stop_filling(self) -> int:
        """Give what arrives to gunicorn again; return how much of the view was not filled."""
        assert self._filling is not None, "nothing is stopped that was not begun"
        missing = self._filling.stop()
        if missing:
            self._callback_parser._body_remaining = missing
        return missing

    def _send_error_response(self, status: int, message: str, extra_headers: Any = ()) -> None:
        """Send gunicorn's own refusals in the form that all our errors have."""
        data = json.dumps({"error": message[:1024]}).encode()
        reason = self._get_reason_phrase(status)
        head = (
            f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\nConnection: close\r\n"
        )
        head += "".join(f"{name}: {value}\r\n" for name, value in extra_headers)
        self._safe_write(head.encode("latin-1") + b"\r\n" + data)

    @property
    def is_idle(self) -> bool:
        """True if nothing is in flight here.

        At most the beginning of a request's headers has come, and all answers have gone.
        """
        is_busy = self._arrivals is not None and self._arrivals.is_busy
        is_served = self._awaiting_request and not self._finishing_calls
        return is_served and not is_busy and not self._unsent

    def leave(self) -> None:
        """Leave: what is being answered now is the last."""
        self._is_refusing = True

    def _will_close(self, *asked: Any) -> bool:
        return self._is_refusing or bool(super()._will_close(*asked))

    def refuse(self, application: Any) -> None:
        """Give any further request this application's answer."""
        self.app = application
        self._is_refusing = True
        begun = self._arrivals.leave() if self._arrivals is not None else b""
        if begun:
            super().data_received(begun)

    def close(self) -> None:
        self._close_transport()

    def check(self, now: float) -> None:
        """End the connection if its client stalls."""
        if self._arrivals is not None:
            late = self._arrivals.check()
            if late:
                super().data_received(late)
            if self._arrivals.used_at and self.req_count == 1 and self._is_unused(now):
                self.close()  # gunicorn's limit, which counts from the end of a request of its own
                return
        unsent = self._unsent
        if self._awaiting_request and not unsent:
            if self.req_count > 1 or not self._has_begun_request():
                self._progress_at = now  # gunicorn's keepalive limit applies, after a request
                has_asked = self._arrivals is not None and self._arrivals.used_at
                is_first = self.req_count <= 1 and not self._received and not has_asked
                if is_first and now - self._connected_at > SILENT_S:
                    self.close()
            elif now - self._progress_at > HEADERS_WITHIN_S:
                self._end(408, "Request Timeout")
            return
        is_receiving = self.is_receiving
        is_sending = bool(unsent)
        done = acknowledged_bytes(self.transport) if is_sending else self._received
        was_sending, before = self._progress
        is_idle = not is_sending and not is_receiving
        if is_idle or is_sending != was_sending or done - before >= MIN_PROGRESS_BYTES:
            self._progress, self._progress_at = (is_sending, done), now
        elif now - self._progress_at > STALL_S:
            self._end(408 if is_receiving and not unsent else 0, "Request Timeout")

    def _has_begun_request(self) -> bool:
        # a parser without such a field may hold something, so it counts as begun
        return bool(getattr(self._callback_parser, "_buffer", True))

    def _end(self, status: int, text: str) -> None:
        if status:
            self._send_error_response(status, text, problems.headers(status))
            self._close_transport()
        else:
            self.transport.abort()


class Connections:
    """All connections of the process."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now = loop.time
        #: The oldest first.
        self._open: dict[Connection, None] = {}
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        #: With more than this the process would soon have no descriptors for anything else.
        self.most = max(1, limit - RESERVED_DESCRIPTORS)

    def add(self, connection: Connection) -> None:
        if len(self._open) >= self.most:
            self._make_room()
        self._open[connection] = None

    def _make_room(self) -> None:
        """Close the idle connection that has been open for longest, if there is one."""
        for connection in self._open:
            if connection.is_idle:
                connection.close()
                return

    def remove(self, connection: Connection) -> None:
        self._open.pop(connection, None)

    def check(self) -> None:
        """Check all connections. To be called once a second."""
        now = self.now()
        for connection in tuple(self._open):
            connection.check(now)

    @property
    def has_any(self) -> bool:
        return bool(self._open)

    def leave(self) -> None:
        """Let the next answer on each connection be its last."""
        for connection in self._open:
            connection.leave()

    def refuse_requests(self) -> None:
        """Refuse new requests from now on, because the server is exiting."""
        for connection in self._open:
            connection.refuse(_say_exiting)

    @property
    def are_idle(self) -> bool:
        return all(connection.is_idle for connection in self._open)

    def close(self) -> None:
        for connection in tuple(self._open):
            connection.close()


async def _say_exiting(scope: Any, receive: Any, send: Any) -> None:
    """An ASGI application. Gunicorn adds `Connection: close`, since its process is ending."""
    if scope["type"] != "http":
        return
    body = FAREWELL if scope["path"].endswith(_INFERENCE) else _SERVER_EXITING
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})
