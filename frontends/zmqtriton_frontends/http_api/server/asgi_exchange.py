"""A request that the ASGI application answers, or whose connection a responder takes over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any
from urllib.parse import unquote_to_bytes

from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.errors import TOO_MANY_UNREAD, Unavailable
from zmqtriton_frontends import http1
from zmqtriton_frontends.http_api.asgi import problems
from zmqtriton_frontends.http_api.asgi.request import CONNECTION
from zmqtriton_frontends.http_api.inference.heads import refusal
from zmqtriton_frontends.http_api.inference.response_encoding import Piece
from zmqtriton_frontends.http_api.server.channel import Channel, Exchange, Owner, by_status
from zmqtriton_frontends.process import request_log
from zmqtriton_frontends.process.arrivals import Arrivals
from zmqtriton_frontends.process.futures import wake
from zmqtriton_frontends.process.ledger import Application, Ledger, Share
from zmqtriton_frontends.process.turns import LITTLE_S, TaskTurn, Turns

#: Part of an answer's room, an eighth, that its marks may take beyond it: the room was taken for
#: the data that it is written from.
_MARKS_PART = 8
#: Bytes that may wait unread on an upgraded connection; with more, nothing is received.
_MAX_HELD_BYTES = 64 << 10


class AnswerRoom:
    """The room in the ledger of one response over HTTP, until its client has read it."""

    def __init__(self, share: Share) -> None:
        self.share = share
        #: Bytes of the share that are for what is being written.
        self._promised = 0
        self._arrivals: Arrivals | None = None

    def admits(self, headers: Iterable[tuple[bytes, bytes]], body: Sized) -> bool:
        """Account for a response that the client may leave unread; False without room.

        The length is in its headers, or `body` is the first part of a stream.
        """
        lengths = [int(value) for name, value in headers if name == _LENGTH]
        size = lengths[0] if lengths else len(body)
        if self._arrivals is not None:
            self._arrivals.pass_on()
        # the share has room for the data that this was written from, and that differ by marks
        # alone; what follows the first part of a stream has room of its own
        if lengths:
            self._promised = 0
        promised = self._promised
        room = self.share.held - promised
        if size <= room + room // _MARKS_PART:
            self.share.hold(size + promised)
            return True
        self.share.hold(promised)
        return size <= INLINE_BYTES or self.share.take(size)

    async def wait(self, size: int) -> None:
        """Wait for room for the response, or a part of it, that is about to be written.

        Raises Unavailable if there is no room for long. A stream reports the actual size with
        made().
        """
        arrivals = self._arrivals
        if arrivals is not None and arrivals.pass_on():
            self.share.add(size)
        elif not await self.share.wait(size):
            raise Unavailable(TOO_MANY_UNREAD)
        self._promised += size

    def made(self, size: int) -> None:
        """Account for the actual size of a part of a stream, which may be larger than expected."""
        promised, self._promised = self._promised, 0
        if promised:
            self.share.add(size - promised)

    def sent(self) -> None:
        """Leave all written bytes to the account of the response that is being sent."""
        self.share.hold(self._promised)

    def arrivals(self) -> Arrivals:
        """Return the room for responses of a stream that wait to be written."""
        self._arrivals = Arrivals(self.share.another())
        return self._arrivals


#: Bytes of a body that may wait for the application; with more, nothing is read.
_MAX_WAITING_BYTES = 64 << 10
#: Largest piece of an answer that is written at once, in bytes.
_PIECE_BYTES = 1 << 20

_LENGTH = b"content-length"
_JSON = (b"content-type", b"application/json")
#: Begin of the paths of probes, which are answered at once: a process that is late may be killed.
_PROBES = b"/v2/health/"

Event = dict[str, Any]


class AsgiExchange(Exchange):
    def __init__(
        self,
        owner: Owner,
        head: http1.Head,
        application: Application,
        ledger: Ledger,
        turns: Turns,
    ) -> None:
        self._owner = owner
        self._channel = owner.channel
        self._head = head
        self._loop = asyncio.get_running_loop()
        # what of the body was not given to the application
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._is_whole = self._is_given = self._is_cancelled = False
        self._must_continue = head.expects_continue
        #: Done when there is more of the body for the application, or the client goes.
        self._news: asyncio.Future[None] | None = None
        self._start: Event | None = None
        self.has_begun_answer = False
        #: Share for what the client has not read.
        self.share = Share(ledger.answers, owner.client)
        self.room = AnswerRoom(self.share)
        #: Share for what is being sent; the other one has what is made of a stream meanwhile.
        self._sending = self.share.another()
        #: Share for what the application makes of the request.
        self.request_share = Share(ledger.requests, owner.client)
        self._received_bytes = 0
        self._is_answered = self._is_chunked = self._has_no_body = False
        #: Bytes of the announced length that are still to be written; None if none was announced.
        self._left_bytes: int | None = None
        self.turn = TaskTurn(turns, owner.client.cost)
        # one that probes again and again waits as others do
        is_modest = owner.client.cost.recent_s(turns.clock()) <= LITTLE_S
        is_probe = is_modest and head.target.startswith(_PROBES)
        work = self.turn.take(self._run, application, begins_at_once=is_probe)
        self._task: asyncio.Task[None] | None = self._loop.create_task(work)

    @property
    def client(self) -> object:
        """Return an object that the requests of the connection share."""
        return self._channel

    @property
    def held_bytes(self) -> int:
        """Return the bytes of this process's memory that the exchange takes."""
        return self.share.held + self._sending.held or self._received_bytes

    # ---------------------------------------------------------------- the body

    def say_continue(self) -> None:
        """Leave the interim response to the application, which may answer without the body."""

    def receive(self, part: bytes, *, is_last: bool) -> None:
        if part:
            self._waiting.append(part)
            self._waiting_bytes += len(part)
            self._received_bytes += len(part)
            self._must_continue = False
            if self._waiting_bytes > _MAX_WAITING_BYTES:
                self._channel.pause_reading()
        self._is_whole = is_last
        wake(self._news)

    def cancel(self) -> None:
        """Cancel the request, whose client has left."""
        self._is_cancelled = True
        self.share.release()
        self._sending.release()
        wake(self._news)
        # forgotten: the task's traceback would keep this, and all that was to be sent
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    async def _receive(self) -> Event:
        while not self._is_cancelled:
            if self._waiting or (self._is_whole and not self._is_given):
                return self._take_body()
            if self._must_continue and self._start is None:
                self._must_continue = False
                self._channel.write(http1.CONTINUE)
            self._news = self._loop.create_future()
            await self._news
        return {"type": "http.disconnect"}

    def _take_body(self) -> Event:
        body = b"".join(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        self._is_given = self._is_whole
        if not self._is_whole:
            self._channel.resume_reading()
        return {"type": "http.request", "body": body, "more_body": not self._is_whole}

    # --------------------------------------------------------------- the answer

    @property
    def _is_wanted(self) -> bool:
        """False once the client has left."""
        return not (self._is_cancelled or self._owner.is_closed)

    async def _run(self, application: Application) -> None:
        if request_log.is_on:
            path = self._head.target.partition(b"?")[0].decode("latin-1")
            request_log.log_request(self._head.method, path)
        try:
            await application(self._scope(), self._receive, self._send)
            if not self._is_answered and self._is_wanted:
                raise RuntimeError("it was left without an answer")
        except Exception as error:  # noqa: BLE001 - an edge: whatever it is, the client gets it
            status, body = problems.fault(self._head.method, self._path(), error)
            self._answer_fault(status, body)
        finally:
            self.request_share.release()

    def _answer_fault(self, status: int, body: bytes) -> None:
        if self._is_answered or self._is_cancelled:
            return
        if self.has_begun_answer:
            self._channel.abort()  # what was written is not all of it
            return
        self._answer_instead(status, body)

    def _answer_instead(self, status: int, body: bytes) -> None:
        rows = [_JSON, (b"content-length", b"%d" % len(body))]
        rows += [(name.encode(), value.encode()) for name, value in problems.headers(status)]
        self._start = {"status": status, "headers": rows}
        self._write_body(self._begin_answer(body, is_last=True), body, is_last=True)
        self._end_answer()

    def _scope(self) -> Event:
        head, info = self._head, self._channel.info
        path, _, query = head.target.partition(b"?")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": f"1.{head.minor_version}",
            "method": head.method,
            "scheme": "http" if info("ssl_object") is None else "https",
            "path": self._path(),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": list(head.fields),
            "server": _address(info("sockname")),
            "client": _address(info("peername")),
            CONNECTION: self,
        }

    def _path(self) -> str:
        return unquote_to_bytes(self._head.target.partition(b"?")[0]).decode(errors="replace")

    def spelled_headers(self) -> Iterator[tuple[str, bytes]]:
        return self._head.spelled_fields()

    def leave(self) -> None:
        """Let the response be the connection's last."""
        self._owner.leave()

    def upgrade(self, fields: Iterable[tuple[bytes, bytes]]) -> Upgraded:
        """Answer with a change of the protocol; return the connection for the caller to keep."""
        assert self._start is None, "nothing was answered"
        self.has_begun_answer = self._is_answered = True
        by_status[101] += 1
        self._channel.begin_stream()
        self.turn.sends_pieces = True
        self._channel.write(http1.status_line(101) + http1.fields(fields) + b"\r\n")
        upgraded = Upgraded(self._owner, self._channel)
        self._owner.hand_over(upgraded)
        return upgraded

    async def _send(self, event: Event) -> None:
        if self._is_answered or not self._is_wanted:
            return  # something else was answered instead
        if event["type"] == "http.response.start":
            if self._start is not None:
                raise RuntimeError("the answer was begun twice")
            self._start = event
            return
        if self._start is None:
            raise RuntimeError("a body that belongs to no answer")
        body, is_last = event.get("body", b""), not event.get("more_body", False)
        if not self.has_begun_answer and not self.room.admits(self._start["headers"], body):
            status, (_, text, _) = refusal(Unavailable(TOO_MANY_UNREAD))
            self._answer_instead(status, text)
            return
        head = b"" if self.has_begun_answer else self._begin_answer(body, is_last=is_last)
        is_held = self.turn.sends_pieces and (self.share.held or self._sending.held)
        if is_held or len(body) > _PIECE_BYTES:
            head, body = await self._write_pieces(head, body)
        self._write_body(head, body, is_last=is_last)
        if is_last and self._left_bytes:
            raise RuntimeError("the answer is shorter than it said")
        if not is_last or self.share.held or self._sending.held:
            await self._channel.drain()
        if is_last:
            self._end_answer()

    def _begin_answer(self, body: Any, *, is_last: bool) -> bytes:
        assert self._start is not None, "it is written once it is known"
        status: int = self._start["status"]
        rows: Iterable[tuple[bytes, bytes]] = self._start["headers"]
        lengths = [value for name, value in rows if name == _LENGTH]
        self._has_no_body = http1.has_no_body(self._head.method, status)
        if lengths == [b"0"]:  # Falcon names a type also where there is no body
            rows = [row for row in rows if row != _JSON]
        written = http1.fields(rows)
        if self._has_no_body and (lengths or not body):
            pass
        elif lengths:
            self._left_bytes = int(lengths[0])
        elif is_last:
            written += b"content-length: %d\r\n" % len(body)
        else:
            written += self._begin_stream()
        self.has_begun_answer = True
        by_status[status] += 1
        return b"".join((http1.status_line(status), written, self._owner.last_fields, b"\r\n"))

    def _begin_stream(self) -> bytes:
        """Prepare for a body of unknown length; return the header field for it."""
        self._channel.begin_stream()
        self.turn.sends_pieces = True
        if self._head.minor_version:
            self._is_chunked = True
            return b"transfer-encoding: chunked\r\n"
        self._owner.leave()  # the end of the connection is the end of the answer
        return b""

    async def _write_pieces(self, head: bytes, body: bytes) -> tuple[bytes, memoryview]:
        """Write all but the last piece of a body, as fast as its client reads.

        The transport would keep a copy of unsent data. The application keeps a chunk until it has
        the next one.
        """
        self.room.sent()
        self._sending.hold(len(body))
        rest = memoryview(body)
        while len(rest) > _PIECE_BYTES:
            piece, rest = rest[:_PIECE_BYTES], rest[_PIECE_BYTES:]
            self._write_body(head, piece, is_last=False)
            head = b""
            await self._channel.drain()
        return head, rest

    def _write_body(self, head: bytes, body: Any, *, is_last: bool) -> None:
        is_piece = type(body) is Piece
        size = len(body.head) + len(body.view) if is_piece else len(body)
        if self._has_no_body:
            self._channel.write(head)
            return
        if self._left_bytes is not None:
            self._left_bytes -= size
            if self._left_bytes < 0:
                raise RuntimeError("the answer is longer than it said")
        if is_piece:
            self._channel.write_all((head + body.head, body.view))
        elif self._is_chunked:
            chunk = http1.chunk(body) if size else b""
            self._channel.write(b"".join((head, chunk, http1.LAST_CHUNK if is_last else b"")))
        else:
            self._channel.write(head + body)

    def _end_answer(self) -> None:
        self._is_answered = True
        self.share.release()
        self._sending.release()
        self._owner.answered()


def _address(place: Any) -> tuple[str, int] | None:
    return (place[0], place[1]) if isinstance(place, tuple) else None


class Upgraded(asyncio.Protocol):
    """A connection that a responder has taken over: bytes in and out, at the pace of both sides."""

    def __init__(self, connection: Any, channel: Channel) -> None:
        """Set up; the connection still closes the socket."""
        self._channel = channel
        self._held = b""
        self._has_ended, self._is_closed = channel.is_half_closed, False
        #: Done when more has come, or nothing more comes.
        self._news: asyncio.Future[None] | None = None
        self._connection = connection
        self.rest = connection.rest

    def data_received(self, data: bytes) -> None:
        if self._is_closed:
            return
        self._held += data
        if len(self._held) > _MAX_HELD_BYTES:
            self._channel.pause_reading()
        wake(self._news)

    def eof_received(self) -> bool:
        self._has_ended = True
        wake(self._news)
        return not self._is_closed

    def connection_lost(self, error: BaseException | None) -> None:
        self.eof_received()
        self._connection.connection_lost(error)

    def pause_writing(self) -> None:
        self._channel.fill()

    def resume_writing(self) -> None:
        self._channel.empty()

    async def read(self) -> bytes:
        """Return received bytes, or wait for the next ones; b"" at the end."""
        while not self._held and not self._has_ended:
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        data, self._held = self._held, b""
        self._channel.resume_reading()
        return data

    def close(self) -> None:
        """Close the connection once all bytes are sent, in a way that the client can read them."""
        self._is_closed = True
        self._connection.close(is_amid_request=not self._has_ended)

    async def write(self, parts: Sequence[bytes | memoryview]) -> None:
        """Send bytes; wait until the client has read most of the unread bytes."""
        if self._channel.is_lost:
            return
        self._channel.write_all(parts)
        while self._channel.unread is not None:
            # several may wait, and one that is cancelled must not end the wait of the others
            await asyncio.wait((self._channel.unread,))
