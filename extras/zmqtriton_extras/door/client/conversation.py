"""The client's end of a door's socket: numbers requests, and sorts responses by number.

Threads wait by receiving themselves; coroutines are woken by their loop, which watches the socket.
A connection belongs to one thread at a time, as ZeroMQ's sockets do.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import stat
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import zmq

from zmqtriton.sdk.wire import InternalError, InvalidArgument, Unavailable, ZmqTritonError, errors
from zmqtriton_extras.door import messages

#: Interval at which a waiting thread checks the connection.
_LOOK_S = 0.25
#: Larger frames are not copied.
_COPIED_BYTES = 64 << 10
_CLOSED = "the connection to the server is closed"
_LOST = "the connection to the server was lost"
_STOPS = "the server is stopping or has ended"
LATE = "the request's deadline has passed"


class Message:
    """A message that has arrived for a request."""

    __slots__ = ("fields", "frames", "kind")

    def __init__(self, kind: str, fields: dict[str, Any], frames: Sequence[Any]) -> None:
        self.kind = kind
        self.fields = fields
        self.frames = frames

    @property
    def is_final(self) -> bool:
        return self.kind in ("answer", "end") or bool(self.fields.get("final", True))

    @property
    def error(self) -> ZmqTritonError:
        """The error that this message reports."""
        kind = errors.BY_CODE.get(str(self.fields.get("code")), InternalError)
        return kind(str(self.fields.get("text", "")))


class Inbox:
    """The messages to one request that its caller has not taken yet."""

    __slots__ = ("messages", "number", "waiting")

    def __init__(self, number: int) -> None:
        self.number = number
        self.messages: deque[Message] = deque()
        #: Future that a coroutine waits for.
        self.waiting: asyncio.Future[None] | None = None

    def wake(self) -> None:
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(None)


class Conversation:
    def __init__(self, path: str) -> None:
        """Connect. Raises Unavailable if there is no socket."""
        try:
            is_socket = stat.S_ISSOCK(os.stat(path).st_mode)
        except OSError as error:
            raise Unavailable(
                f"no server at '{path}', start one with --zmq-door: {error.strerror}"
            ) from None
        if not is_socket:
            raise Unavailable(
                f"no server at '{path}': it is not a socket; pass the path that the server logs"
            )
        self._path = path
        self._context = zmq.Context()
        self._socket, self._monitor = messages.open_client(self._context, path)
        #: The server of this connection ends, or has ended.
        self._is_left = False
        self._numbers = itertools.count(1)
        self._open: dict[int, Inbox] = {}
        #: The loop that watches the socket.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waits_ms = -1
        #: Requests without a caller, which the next message cancels.
        self._abandoned: deque[int] = deque()
        self._is_sending = False
        self._thread = threading.get_ident()
        self._pid = os.getpid()
        self.is_closed = False

    def close(self) -> None:
        if self.is_closed or os.getpid() != self._pid:
            return
        self.is_closed = True
        self._unwatch()
        self._fail_all(Unavailable(_CLOSED))
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(0)
        self._context.term()

    # ---------------------------------------------------------------- asking

    def ask(self, verb: str, fields: Mapping[str, Any], frames: Sequence[Any] = ()) -> Inbox:
        """Send a request. Raises Unavailable if the connection is closed, or the server stops."""
        if self._is_left and not self.is_closed and not self._open:
            self._connect_anew()
        inbox = Inbox(next(self._numbers))
        self._send(verb, inbox.number, fields, frames)
        self._open[inbox.number] = inbox
        return inbox

    def _connect_anew(self) -> None:
        """Connect to the next server. Raises Unavailable without one."""
        if not _listens(self._path):
            raise Unavailable(_STOPS)
        self._unwatch()
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(0)
        self._socket, self._monitor = messages.open_client(self._context, self._path)
        self._waits_ms = -1
        self._abandoned.clear()
        self._is_left = False

    def grant(self, inbox: Inbox, responses: int) -> None:
        """Allow a number of further responses of a stream, if it is still open."""
        if inbox.number in self._open:
            self._send("credit", inbox.number, {"responses": responses})

    def cancel(self, inbox: Inbox) -> None:
        """Cancel a request that was not answered, since its caller no longer waits.

        Destructors may call this, in any thread and while another message is being sent: then the
        request is cancelled with the next message.
        """
        if self._open.pop(inbox.number, None) is None or self.is_closed:
            return
        if self._socket.closed:
            return  # the collector, or the end of the interpreter, has come to it first
        self._abandoned.append(inbox.number)
        if not self._is_sending and threading.get_ident() == self._thread:
            self._cancel_abandoned()

    def _cancel_abandoned(self) -> None:
        while self._abandoned:
            header = messages.encode("cancel", self._abandoned.popleft(), {})
            messages.send_frames(self._socket, [header], _COPIED_BYTES)

    def _send(
        self, verb: str, number: int, fields: Mapping[str, Any], frames: Sequence[Any] = ()
    ) -> None:
        if self.is_closed:
            raise Unavailable(_CLOSED)
        if os.getpid() != self._pid:
            raise Unavailable("this process was forked after the connection: connect again in it")
        try:
            header = messages.encode(verb, number, fields)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidArgument(f"the request cannot be sent, connect again: {error}") from None
        self._thread, self._is_sending = threading.get_ident(), True
        try:
            self._cancel_abandoned()
            messages.send_frames(self._socket, [header, *frames], _COPIED_BYTES)
        finally:
            self._is_sending = False

    # --------------------------------------------------------------- waiting

    def next(self, inbox: Inbox, until_s: float | None) -> Message:
        """Wait for the next message to a request. Raises TimeoutError after that time."""
        while not inbox.messages:
            self._receive(until_s)
        return inbox.messages.popleft()

    def _receive(self, until_s: float | None) -> None:
        if self.is_closed:
            raise Unavailable(_CLOSED)
        left_s = _LOOK_S if until_s is None else min(_LOOK_S, until_s - time.monotonic())
        if left_s <= 0:
            raise TimeoutError(LATE)
        waits_ms = max(1, int(left_s * 1000))
        if waits_ms != self._waits_ms:
            self._socket.setsockopt(zmq.RCVTIMEO, waits_ms)
            self._waits_ms = waits_ms
        try:
            frames = messages.await_frames(self._socket)
        except zmq.Again:
            self._check_connection()
            return
        self._sort(frames)

    async def next_async(self, inbox: Inbox, until_s: float | None) -> Message:
        """Wait for the next message to a request, in a coroutine. Raises TimeoutError."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._unwatch()
            self._loop = loop
            for watched in (self._socket, self._monitor):
                loop.add_reader(watched.get(zmq.FD), self._drain)
        # what was sent may have consumed the edge of the descriptor
        self._drain()
        while not inbox.messages:
            inbox.waiting = loop.create_future()
            left_s = None if until_s is None else until_s - time.monotonic()
            try:
                await asyncio.wait_for(inbox.waiting, left_s)
            except asyncio.TimeoutError:
                raise TimeoutError(LATE) from None
        return inbox.messages.popleft()

    def _unwatch(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None and not loop.is_closed():
            for watched in (self._socket, self._monitor):
                loop.remove_reader(watched.get(zmq.FD))

    # -------------------------------------------------------------- receiving

    def _drain(self) -> None:
        """Take all messages that have arrived."""
        while not self.is_closed:
            frames = messages.take_frames(self._socket)
            if frames is None:
                self._check_connection()
                return
            self._sort(frames)

    def _sort(self, frames: Sequence[Any]) -> None:
        try:
            header = messages.decode(frames[0].buffer)
        except ZmqTritonError as error:
            self._fail_all(
                errors.ProtocolError(
                    "use a client of the server's version, its message does not decode: "
                    f"{error.text}"
                )
            )
            return
        message = Message(header.verb, header.fields, frames[1:])
        if header.id == messages.NO_ID:
            self._fail_all(message.error)
            return
        self._is_left = self._is_left or bool(header.fields.get("leaving"))
        inbox = self._open.get(header.id)
        if inbox is None:
            return  # it was cancelled
        if message.is_final:
            del self._open[header.id]
        inbox.messages.append(message)
        inbox.wake()

    def _check_connection(self) -> None:
        """Fail open requests if the connection has ended: they will get no response."""
        while (event := messages.connection_event(self._monitor)) is not None:
            has_begun, _ = event
            if not has_begun:
                self._is_left = True
                self._fail_all(Unavailable(_LOST))

    def _fail_all(self, error: ZmqTritonError) -> None:
        failed, self._open = self._open, {}
        for inbox in failed.values():
            fields = {"code": error.code, "text": error.text, "final": True}
            inbox.messages.append(Message("error", fields, ()))
            inbox.wake()


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return not probe.connect_ex(path)
