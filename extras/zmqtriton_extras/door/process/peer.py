"""A client: its open requests, its waiting requests, and the messages that it has not read.

ZeroMQ keeps a few messages for a client that does not read. All others wait here, booked in the
ledger: then its streams stop, and its further requests wait, or are refused. Other clients lose
nothing.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, Protocol

from zmqtriton.sdk.frontend import (
    Arrivals,
    Ledger,
    OpenSequences,
    Share,
)
from zmqtriton.sdk.wire import InvalidArgument, Unavailable, errors
from zmqtriton_extras.door.process import responses
from zmqtriton_extras.door.process.responses import Message

#: Maximum number and bytes of a client's open requests; beyond them the next request waits.
_MAX_OPEN = 1024
_MAX_BYTES = 64 << 20
#: Messages up to this size are copied by ZeroMQ and are not booked once it has them; with the
#: high-water mark of the socket that is at most 1 MiB.
COPIED_BYTES = 16 << 10
#: Maximum bytes of unread large responses of a client; beyond it its streams wait.
_UNREAD_BYTES = 4 << 20
#: Maximum number of unread messages of a client that continues to send requests.
_MAX_UNREAD = 4096
#: Bytes of a waiting request, in addition to its frames.
_WAITING_BYTES = 1 << 10
_CANCELLED = "the request was cancelled by its client"


class Exchange(Protocol):
    """A begun request."""

    def cancel(self) -> None: ...

    def grant(self, responses: int) -> None:
        """Allow a number of further responses."""


class Asked(NamedTuple):
    """A request that has arrived."""

    number: int
    size: int
    #: Begins it. It may be answered before this returns.
    begin: Callable[[], Exchange | None]


class Peer:
    def __init__(
        self,
        ledger: Ledger,
        put: Callable[[Message], bool],
        shut_out: Callable[[], None],
        user: int,
        is_leaving: Callable[[], bool] = lambda: False,
    ) -> None:
        """Set up; `put` gives a message to ZeroMQ and returns whether ZeroMQ had room for it.

        While the server is leaving, final messages tell that to the client, unless a sequence is
        open.
        """
        self._is_leaving = is_leaving
        #: Open sequences of the client. While it has any, it is not asked to leave, since another
        #: server does not know them.
        self.sequences = OpenSequences()
        self.user = user
        #: The name of the client in logs.
        self.name = f"user {user}"
        self._put = put
        self._shut_out = shut_out
        self._client = client = ledger.account(
            moved=lambda: self._read_bytes,
            owes=lambda: bool(self._answers.held or self._creditless),
            end=shut_out,
        )
        self._requests, self._answers = (
            Share(ledger.requests, client),
            Share(ledger.answers, client),
        )
        self._loop = asyncio.get_running_loop()
        #: Open exchanges with their sizes, by number; None while one is being started.
        self._open: dict[int, tuple[Exchange | None, int]] = {}
        self._bytes = 0
        #: The request whose place in the order is still open.
        self._held_by = 0
        #: Waiting requests by number, in their order.
        self._waiting: dict[int, Asked] = {}
        #: Unread messages, each with its bytes that are not counted with its frames.
        self._unread: deque[tuple[Message, int]] = deque()
        #: Number of streams that wait for the client to let them send more.
        self._creditless = 0
        #: Streams that wait for room.
        self._stopped: deque[asyncio.Future[None]] = deque()
        self._read_bytes = 0
        self.is_gone = False

    # ---------------------------------------------------------------- requests

    def ask(self, request: Asked) -> None:
        """Begin a request, or let it wait for its turn."""
        if request.number in self._open or request.number in self._waiting:
            text = f"there is a request with the id {request.number} that is not answered yet"
            self.answer(0, responses.error(0, InvalidArgument(text)))
        elif not self._waiting and self._has_room:
            self._begin(request)
        elif self._requests.take(request.size + _WAITING_BYTES):
            self._waiting[request.number] = request
        else:
            error = Unavailable(errors.NO_MEMORY)
            self.answer(request.number, responses.error(request.number, error))

    @property
    def _has_room(self) -> bool:
        return (
            not self._held_by
            and len(self._open) + len(self._unread) < _MAX_OPEN
            and self._bytes < _MAX_BYTES
        )

    def _begin(self, request: Asked) -> None:
        number, size, begin = request
        self._open[number] = None, size
        self._bytes += size
        try:
            exchange = begin()
        except Exception as error:  # noqa: BLE001 - an edge: the client's other requests go on
            problem = responses.failure("a request", error)
            self.answer(number, responses.error(number, problem))
            return
        if number in self._open:
            self._open[number] = exchange, size

    def _begin_waiting(self) -> None:
        while self._waiting and self._has_room and not self.is_gone:
            self._begin(self._take_waiting(next(iter(self._waiting))))

    def _take_waiting(self, number: int) -> Asked:
        request = self._waiting.pop(number)
        self._requests.add(-request.size - _WAITING_BYTES)
        return request

    def hold_back(self, number: int) -> None:
        self._held_by = number

    def let_go(self, number: int) -> None:
        if self._held_by == number:
            self._held_by = 0
            if self._waiting:
                self._loop.call_soon(self._begin_waiting)

    def grant(self, number: int, responses: int) -> None:
        """Allow a number of further responses of a stream, unless it has ended."""
        exchange, _ = self._open.get(number, (None, 0))
        if exchange is not None:
            exchange.grant(responses)

    def cancel(self, number: int) -> None:
        """Cancel a request, unless it was answered."""
        exchange, _ = self._open.get(number, (None, 0))
        if number in self._waiting:
            self._take_waiting(number)
        elif exchange is None:
            return
        else:
            exchange.cancel()
        self.answer(number, responses.error(number, errors.Cancelled(_CANCELLED)))

    @property
    def is_idle(self) -> bool:
        """True if no request is open, and all messages were read as far as can be known."""
        return not (self._open or self._waiting or self._unread or self._answers.held)

    # ----------------------------------------------------------------- answers

    def answer(self, number: int, message: Message) -> None:
        """Send the final message of a request, or a message that belongs to no request."""
        _, size = self._open.pop(number, (None, 0))
        self._bytes -= size
        if self.is_gone:
            return
        if self._is_leaving() and not self.sequences:
            message = responses.leaving(message)
        if not self._send(message):
            self._send(responses.error(number, Unavailable(errors.TOO_MANY_UNREAD)))
        self.let_go(number)
        if self._waiting:
            self._loop.call_soon(self._begin_waiting)

    def arrivals(self) -> Arrivals:
        return Arrivals(self._answers.another())

    @contextmanager
    def waiting(self) -> Iterator[None]:
        self._creditless += 1
        try:
            yield
        finally:
            self._creditless -= 1

    async def send(self, message: Message, arrivals: Arrivals) -> None:
        """Send a message of a stream when there is room for it."""
        while not self.is_gone and (self._unread or self._answers.held > _UNREAD_BYTES):
            stopped = self._loop.create_future()
            self._stopped.append(stopped)
            await stopped
        if not self.is_gone and not self._send(message, had_room=arrivals.pass_on()):
            raise Unavailable(errors.TOO_MANY_UNREAD)

    def _send(self, message: Message, *, had_room: bool = False) -> bool:
        """Send a message; False if there is no memory to keep it until it is read.

        If there was room until now (`had_room`), it is sent in any case.
        """
        small = sum(map(len, message))
        if small > COPIED_BYTES:
            # many that are small are large together
            small_frame = COPIED_BYTES // len(message)
            large = sum(len(frame) for frame in message if len(frame) > small_frame)
            if had_room:
                self._answers.add(large)
            elif not self._answers.take(large):
                return False
            small -= large
            message = [
                self._booked(frame) if len(frame) > small_frame else frame for frame in message
            ]
        if self._unread or not self._put(message):
            if len(self._unread) >= _MAX_UNREAD or not self._answers.take(small):
                self._shut_out()
                return True
            self._unread.append((message, small))
        return True

    def _booked(self, frame: bytes | memoryview) -> memoryview:
        """Return a frame that leaves the ledger when ZeroMQ has written or dropped it."""
        view = memoryview(frame)
        weakref.finalize(view, self._written, len(frame)).atexit = False
        return view

    def _written(self, size: int) -> None:
        # in a thread of pyzmq's
        with suppress(RuntimeError):  # the loop is closed: the process ends
            self._loop.call_soon_threadsafe(self._unbook, size)

    def _unbook(self, size: int) -> None:
        self._read_bytes += size
        if not self.is_gone:
            self._answers.add(-size)
            self._go_on()

    def flush(self) -> None:
        """Send as many messages as ZeroMQ has room for now."""
        while self._unread and self._put(self._unread[0][0]):
            self._unbook(self._unread.popleft()[1])
        self._go_on()
        if self._waiting:
            self._begin_waiting()

    def _go_on(self) -> None:
        """Wake streams that wait for room; each checks the room again."""
        if self._stopped and not self._unread and self._answers.held <= _UNREAD_BYTES:
            stopped, self._stopped = self._stopped, deque()
            for future in stopped:
                if not future.done():
                    future.set_result(None)

    @property
    def is_blocked(self) -> bool:
        """True if messages wait for room in ZeroMQ."""
        return bool(self._unread)

    def is_stalled(self, now: float) -> bool:
        """Return whether the client reads too slowly while other clients lack memory."""
        return self._client.progress.is_paused_too_long(now, self._read_bytes, self._answers.held)

    # --------------------------------------------------------------- its death

    def leave(self) -> None:
        """Cancel all requests: the client has gone."""
        self.is_gone = True
        exchanges = [exchange for exchange, _ in self._open.values() if exchange is not None]
        self._open.clear()
        self._waiting.clear()
        self._unread.clear()
        self._requests.release()
        self._answers.release()
        self._client.leave()
        for exchange in exchanges:
            exchange.cancel()
        for future in self._stopped:
            future.cancel()
        self._stopped.clear()
