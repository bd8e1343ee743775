"""Streams of responses to one request: in order, at the reader's pace, from two directions.

Responses come through the broker or straight from the stub's publisher, the final one always
through the broker. A Reader puts responses in order and does no I/O; a ResponseStream wakes the
waiting readers; Streams has all streams of a gateway, and receives what stubs publish
(publishers.py).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from zmqtriton_floor import wire
from zmqtriton_floor.errors import (
    NO_THREAD,
    TOO_MANY_UNREAD,
    InternalError,
    ProtocolError,
    Unavailable,
    ZmqTritonError,
    from_number,
)
from zmqtriton_frontends.gateway.publishers import Publishers
from zmqtriton_frontends.process.arrivals import FREE_BYTES, Arrivals
from zmqtriton_frontends.process.futures import wake
from zmqtriton_frontends.tensors.references import has_references, read_response, size_of

#: Seconds that a missing response is awaited, after the final one has come and before. Nothing is
#: lost between living processes, but a busy machine keeps libzmq's threads waiting.
LATE_S = 5.0
GAP_S = 5.0
#: Parts of the window, in responses and bytes: when so much is used, the stub gets a grant with
#: its reader's progress. If a slow reader is as far behind, its progress is sent each
#: _TELL_EVERY_S, because the stub waits for it.
_STEP, _STEP_BYTES = wire.STREAM_WINDOW // 2, wire.STREAM_WINDOW_BYTES // 4
_TELL_EVERY_S = 0.1
#: Seconds between two looks at streams with many unread bytes, which get no grants meanwhile.
_LOOK_EVERY_S = 0.5


class StreamItem(NamedTuple):
    """One response. With is_final it is the last one, which may have neither body nor error."""

    body: wire.ResponseBody | None
    error: ZmqTritonError | None
    is_final: bool

    def content(self) -> wire.ResponseBody | None:
        """Return the body, if there is one. Raises the error."""
        if self.error is not None:
            raise self.error.again()
        return self.body

    def changed(self, change: Callable[[wire.ResponseBody], wire.ResponseBody]) -> StreamItem:
        """Return the item with a changed body, or with the error of the change."""
        if self.body is None:
            return self
        try:
            return self._replace(body=change(self.body))
        except ZmqTritonError as error:
            return StreamItem(None, error, self.is_final)

    async def opened(
        self, open_: Callable[[wire.ResponseBody], Awaitable[wire.ResponseBody]]
    ) -> StreamItem:
        """Return the item with its large tensors where they can be read, or with an error."""
        if self.body is None or not has_references(self.body):
            return self
        try:
            return self._replace(body=await open_(self.body))
        except ZmqTritonError as error:
            return StreamItem(None, error, self.is_final)


#: (code, text, body, is_final) as they came.
_Response = tuple[int, str, bytes, bool]


class Reader:
    """The responses to one request: added in any order, returned in the stub's order."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        arrivals: Arrivals | None = None,
    ) -> None:
        """Set up; `arrivals` counts messages that were not taken yet."""
        self._clock = clock
        self.arrivals = arrivals or Arrivals()
        #: Responses for pop(), in the order of the stream.
        self.ready: deque[_Response] = deque()
        #: Time at which missing responses are given up; None without any.
        self.deadline: float | None = None
        #: The final response is in `ready`, or was.
        self.was_final = False
        #: Number of responses that were popped, and the number of them that the stub knows of.
        self.taken = 0
        self._stub_count = 0
        #: Bytes of popped responses that no grant has reported yet, and bytes that the last grant
        #: reported.
        self._untold_bytes = self.told_bytes = 0
        self._told_s = clock()
        self._next = 0
        #: Number of responses that had left when a broker died.
        self._sent = 0
        self._ahead: dict[int, _Response] = {}
        #: Bodies that came again or will not be ready; what they refer to is still to be released.
        self._dropped: list[bytes] = []
        #: The number of the final response, and that response.
        self._end: int | None = None
        self._final: _Response = (0, "", b"", True)

    def take(self, row: wire.Outcome | wire.Reply, body: bytes) -> None:
        """Take a response of the stub."""
        number = row.number
        if self.was_final or (row.flags & wire.FINAL and self._end is not None):
            self._dropped.append(body)
        elif row.flags & wire.FINAL:
            self._end, self._final = number, (row.code, row.text, body, True)
            self.arrivals.unread += size_of(body)
            self.deadline = self._clock() + LATE_S
            self._advance()
        elif row.flags & wire.SENT:
            self._sent = number
            self._advance()
        elif number == self._next and not self._ahead and self._end is None:
            self._next = number + 1
            self.ready.append((row.code, row.text, body, False))
            self.arrivals.unread += len(body) if type(body) is bytes else size_of(body)
        elif number < self._next or number in self._ahead:
            self._dropped.append(body)
        elif number >= self.taken + wire.STREAM_WINDOW or (
            self._end is not None and number >= self._end
        ):
            self._dropped.append(body)
            self.end(
                InternalError(
                    f"response {number} of the stream came out of turn: send the request again"
                )
            )
        else:
            self._ahead[number] = (row.code, row.text, body, False)
            self.arrivals.unread += size_of(body)
            self._advance()

    def end(self, error: ZmqTritonError) -> None:
        """End: no more responses come, and missing responses stay missing."""
        if not self.was_final:
            self._finish((error.number, error.text, b"", True))

    def expire(self) -> None:
        """End with an error if something has been missing for too long."""
        if self.deadline is not None and self._clock() >= self.deadline:
            self._advance()  # what was missing may have come in its turn
            if self.deadline is not None:
                self.end(
                    Unavailable(
                        f"response {self._next} of the stream was lost: send the request again"
                    )
                )

    def pop(self) -> _Response:
        """Return the next response; only if there is one in `ready`."""
        self.taken += 1
        response = self.ready.popleft()
        body = response[2]
        size = len(body) if type(body) is bytes else size_of(body)
        self.arrivals.delivered = size
        self._untold_bytes += size
        return response

    def left(self) -> list[bytes]:
        """Return the bodies of the responses that were not popped, and of dropped ones."""
        return [*self._dropped, *(body for _, _, body, _ in (*self.ready, *self._ahead.values()))]

    def drop(self, error: ZmqTritonError) -> list[bytes]:
        """End with an error instead of unread responses; return the bodies of these."""
        bodies = self.left()
        self.ready.clear()
        self._ahead.clear()
        self._dropped.clear()
        self._finish((error.number, error.text, b"", True))
        self.arrivals.unread = self.arrivals.delivered
        return bodies

    def untold(self) -> int:
        """Return the number of read responses if the stub should know it now, else 0.

        The response that was popped last counts as read.
        """
        arrivals = self.arrivals
        arrivals.unread -= arrivals.delivered
        arrivals.delivered = 0
        if arrivals.room > FREE_BYTES:
            arrivals.take()
        taken, stub_count = self.taken, self._stub_count
        if self.was_final or taken == stub_count:
            return 0
        size = self._untold_bytes
        if self._next - stub_count < _STEP and arrivals.unread + size < _STEP_BYTES:
            return 0
        is_far = taken - stub_count >= _STEP or size >= _STEP_BYTES
        if not is_far and self._clock() - self._told_s < _TELL_EVERY_S:
            return 0
        self._stub_count, self._told_s = taken, self._clock()
        self.told_bytes, self._untold_bytes = size, 0
        return taken

    def _advance(self) -> None:
        ahead, before = self._ahead, self._next
        while self._next in ahead:
            self.ready.append(ahead.pop(self._next))
            self._next += 1
        if self._end is not None and self._next >= self._end:
            self._finish(self._final)
        elif self._end is None and not ahead and self._next >= self._sent:
            self.deadline = None
        elif self._end is None and (self.deadline is None or self._next != before):
            self.deadline = self._clock() + GAP_S

    def _finish(self, final: _Response) -> None:
        self.ready.append(final)
        self.was_final = True
        for _, _, body, _ in self._ahead.values():
            self._dropped.append(body)
            self.arrivals.unread -= size_of(body)
        self._ahead.clear()
        self.deadline = None


class ResponseStream:
    """A request with any number of responses, up to the final one or until its reader leaves."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        own_id: int,
        arrivals: Arrivals | None = None,
        *,
        has_places: bool = False,
        cancel: Callable[[int], None] = lambda own_id: None,
    ) -> None:
        """Set up; with `has_places` outputs may be written where its client wants them.

        `cancel` is called when a response is lost, since its client may read others for long.
        """
        self.own_id = own_id
        self._has_places = has_places
        self._cancel = cancel
        self.reader = Reader(arrivals=arrivals)
        #: The last response was popped.
        self.has_ended = False
        #: Number of taken responses that the last grant has reported to the stub.
        self.granted = 0
        self._loop = loop
        self._waiting: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def take(self, row: wire.Outcome | wire.Reply, body: bytes) -> None:
        """Take a response of the stub."""
        reader = self.reader
        reader.take(row, body)
        if reader.ready:
            wake(self._waiting)
        if reader.deadline is not None and self._timer is None:
            self._watch(reader.deadline)

    def end(self, error: ZmqTritonError) -> None:
        """End: the broker itself has ended the request."""
        self.reader.end(error)
        wake(self._waiting)

    def drop(self, error: ZmqTritonError) -> list[bytes]:
        """End with an error that replaces the unread responses; return their bodies."""
        bodies = self.reader.drop(error)
        wake(self._waiting)
        return bodies

    async def wait(self) -> None:
        """Wait until a response is ready."""
        while not self.reader.ready:
            self._waiting = self._loop.create_future()
            await self._waiting

    def pop(self) -> StreamItem:
        """Return the next response; only if one is ready."""
        code, text, body, is_final = self.reader.pop()
        self.has_ended = is_final
        if code or not body:
            return StreamItem(None, from_number(code, text) if code else None, is_final)
        try:
            return StreamItem(read_response(body, has_places=self._has_places), None, is_final)
        except ProtocolError as error:
            return StreamItem(None, error, is_final)

    def _watch(self, deadline: float) -> None:
        self._timer = self._loop.call_later(deadline - time.monotonic(), self._look)

    def _look(self) -> None:
        self._timer = None
        self.reader.expire()
        wake(self._waiting)  # wait() looks whether anything is ready
        if self.reader.deadline is not None:
            self._watch(self.reader.deadline)
        elif self.reader.was_final:
            self._cancel(self.own_id)


class Streams:
    """Responses straight from stubs, and the progress of this process's readers."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        serial: int,
        directory: str,
        replies: Mapping[int, object],
        *,
        tell: Callable[[wire.StreamAck], None],
        cancel: Callable[[int], None],
        discard: Callable[[bytes], None],
    ) -> None:
        """Set up; `replies` has all requests without a final answer, streams among them.

        `tell` gets the grants for the broker. If there is no room for responses, `cancel` gets
        their request, and `discard` the responses.
        """
        self._replies = replies
        self._tell = tell
        self._cancel = cancel
        self._discard = discard
        self._loop = loop
        self._serial = serial
        self.publishers = Publishers(loop, serial, directory, self._take)
        #: Streams whose final response has come through the broker, until their reader has it:
        #: others before it may still come straight.
        self._ending: dict[int, ResponseStream] = {}
        #: Streams that are older than the broker: their last grants may have been lost with the
        #: one before, and are sent again.
        self._old: list[ResponseStream] = []
        #: Streams that hold room for unread responses, and the bytes of their grants that are
        #: withheld.
        self._watched: dict[ResponseStream, int] = {}
        self._look_due: asyncio.TimerHandle | None = None
        #: Number of responses of streams by the way that they came: from the stub, or through the
        #: broker.
        self.direct = 0
        self.brokered = 0

    def close(self) -> None:
        if self._look_due is not None:
            self._look_due.cancel()
        self.publishers.close()

    def take_reply(self, stream: ResponseStream, row: wire.Reply, body: bytes) -> None:
        """Add a response that came through the broker."""
        if row.flags & wire.FINAL:
            self._ending[stream.own_id] = stream
        if row.code and not row.source:
            # the broker does not know how many there were; what its stub has sent is here before
            # that
            self.publishers.read(math.inf)
            stream.end(from_number(row.code, row.text))
            return
        if body or row.code:
            self.brokered += 1
        if row.flags & wire.FINAL:
            self.publishers.read()
        elif row.source:
            try:
                self.publishers.follow(row.source)
            except RuntimeError:  # libzmq cannot have its threads
                self._refuse(stream, Unavailable(NO_THREAD))
                self._discard(body)
                return
        stream.take(row, body)
        arrivals = stream.reader.arrivals
        if arrivals.unread > arrivals.room:
            self._admit(stream)

    def left(self, stream: ResponseStream) -> None:
        """Forget a stream whose responses are all read, or whose reader has left."""
        self._ending.pop(stream.own_id, None)
        self._watched.pop(stream, None)

    def taken(self, stream: ResponseStream) -> None:
        """Grant the stub more responses after one was read, if a grant is due and has room."""
        reader = stream.reader
        if not reader.untold():
            return
        if stream in self._watched:
            withheld = self._watched[stream] + reader.told_bytes
            if not reader.arrivals.has_room(withheld):
                self._watched[stream] = withheld
                return
            self._watched[stream] = 0
        self._grant(stream, reader.taken)

    def _grant(self, stream: ResponseStream, responses: int) -> None:
        stream.granted = responses
        self._tell(wire.StreamAck(self._serial, stream.own_id, responses))

    # ------------------------------------------------------------------- room

    def _admit(self, stream: ResponseStream) -> None:
        if not stream.reader.arrivals.admit():
            self._refuse(stream, Unavailable(TOO_MANY_UNREAD))
            return
        self._watched.setdefault(stream, 0)
        if self._look_due is None:
            self._look_due = self._loop.call_later(_LOOK_EVERY_S, self._look)

    def _refuse(self, stream: ResponseStream, error: ZmqTritonError) -> None:
        """End a stream whose responses found no room, with the error."""
        self._cancel(stream.own_id)
        for body in stream.drop(error):
            self._discard(body)

    def _look(self) -> None:
        """Send withheld grants that have room now; repeat grants of readers that make progress."""
        for stream, withheld in list(self._watched.items()):
            arrivals = stream.reader.arrivals
            if withheld and arrivals.has_room(withheld):
                self._watched[stream] = 0
                self._grant(stream, stream.reader.taken)
            elif withheld or arrivals.unread >= _STEP_BYTES:
                # compared by the next look, also if no grant is sent
                if arrivals.is_moving() and not stream.reader.was_final:
                    self._grant(stream, stream.granted)
            elif not arrivals.held:
                del self._watched[stream]
        self._look_due = None
        if self._watched:
            self._look_due = self._loop.call_later(_LOOK_EVERY_S, self._look)

    # ------------------------------------------------------- the broker's death

    def renew(self) -> None:
        """Send the next broker the grants that the last one may never have passed on."""
        self._old = [s for s in self._replies.values() if isinstance(s, ResponseStream)]
        self._tell_again()

    def _tell_again(self) -> None:
        # as long as they live: the broker forwards nothing to a stub that has not said hello
        self._old = [s for s in self._old if self._replies.get(s.own_id) is s]
        for stream in self._old:
            self._grant(
                stream, stream.granted if self._watched.get(stream) else stream.reader.taken
            )
        if self._old:
            self._loop.call_later(1.0, self._tell_again)

    # ------------------------------------------------------------- publishers

    def _take(self, message: Any, bodies: list[bytes]) -> None:
        if type(message) is not wire.Results or len(message.outcomes) != len(bodies):
            raise ProtocolError("no Results with their bodies")
        for outcome, body in zip(message.outcomes, bodies, strict=True):
            if outcome.peer != self._serial or outcome.code or outcome.flags or outcome.blocks:
                raise ProtocolError("an outcome that belongs to the broker, or to another")
            stream = self._replies.get(outcome.id) or self._ending.get(outcome.id)
            # of a cancelled one some may still come
            if isinstance(stream, ResponseStream):
                self.direct += 1
                stream.take(outcome, body)
                arrivals = stream.reader.arrivals
                if arrivals.unread > arrivals.room:
                    self._admit(stream)
