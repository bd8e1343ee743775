"""The BLS requests of this model on their way to the broker, and the replies to them.

One lock guards the socket, as in connection.py: a thread that finds it taken leaves its work to the
thread that holds it. Bodies are opaque here.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import threading
import time
from collections import deque
from types import MappingProxyType
from typing import Any, Callable, Sequence, Union

from zmqtriton_floor import endpoints, wire
from zmqtriton_floor.errors import (
    InternalError,
    ProtocolError,
    Unavailable,
    ZmqTritonError,
    from_number,
)
from zmqtriton_floor.zmtp import Dealer
from zmqtriton_stub.broker.bls_call import (
    BlsCall,
    Duties,
    Notify,
    ReplyWaits,
    ReplyWithBody,
    blocks_of,
)
from zmqtriton_stub.memory.tensor_memory import TensorMemory

_Item = Union[BlsCall, wire.Cancel, wire.StreamAcks, wire.WaitReport]

#: A reader acknowledges in steps of this, and more often if it is slow and as far behind: who sends
#: waits for it.
_STEP = wire.STREAM_WINDOW // 2
_GRANT_EVERY_S = 0.1

_ENDED = Unavailable("Server exiting")
_FORKED = Unavailable(
    "a process that the model has forked gets no answers to calls that were made before: those are "
    "answered in the process that made them"
)
_NOT_SENT = wire.Request(0, 0, "", -1, 0, 0, 0, 0, 0, 0, 0)
_GAP = InternalError("responses of the model were lost on their way")


def _dial(bootstrap: wire.Bootstrap) -> Dealer:
    return Dealer(endpoints.requests_address(bootstrap.directory, bootstrap.epoch))


def refuse(calls: dict[int, BlsCall], error: ZmqTritonError) -> None:
    """Refuse all of these calls."""
    for question in list(calls.values()):
        question.refuse(error)
    calls.clear()


class BlsClient:
    """The DEALER to the broker and the open calls; it connects with the first call."""

    def __init__(
        self,
        bootstrap: wire.Bootstrap,
        memory: TensorMemory,
        duties: Callable[[], Duties],
        wake: Callable[[], None],
        attends: Callable[[Any], bool] = lambda loop: False,
        dial: Callable[[wire.Bootstrap], Dealer] = _dial,
        *,
        beside: Duties = MappingProxyType({}),
    ) -> None:
        """Set up; `duties` are the main thread's, and `wake` makes it look at `orphans`.

        `attends` tells whether an event loop of the main thread does the duties anyway. `dial`
        makes connections. `beside` are the duties of other threads.
        """
        self._dial = dial
        self._bootstrap = bootstrap
        self._memory = memory
        self._wake = wake
        self._socket: Dealer | None = None
        self._is_closed = False
        #: Why no call can be made any more.
        self._refusal = _ENDED
        #: The broker is dead, and the next one must not be asked yet.
        self._is_between = False
        #: Only the first call needs a connection.
        self._has_asked = False
        self._lock = threading.Lock()
        #: Holds the socket's own descriptor, which changes with the broker; this one stays.
        self._epoll = select.epoll()
        self.descriptor = self._epoll.fileno()
        self._outgoing: deque[_Item] = deque()
        self._ids = itertools.count(1)
        #: Calls without their final reply.
        self._open: dict[int, BlsCall] = {}
        #: Bodies of replies that were neither opened nor discarded yet, by request and number.
        self._unopened: dict[tuple[int, int], bytes] = {}
        #: Number of open calls whose replies the model will not take.
        self.orphans = 0
        #: Held for a few steps; reentrant, as a destructor in the middle of them may drop another
        #: call.
        self._changing = threading.RLock()
        self.waits = ReplyWaits(self.descriptor, self.turn, duties, attends, beside)
        #: Reports what the batches wait for. If only another thread can see that, it reports
        #: nothing now and has that thread call its argument.
        self.standstill: Callable[[Callable[[], None]], list[wire.WaitEdge]] = lambda later: []
        #: Reads the connection that brings this instance its batches: its leases come there, too.
        self.read_leases: Callable[[], None] = lambda: None
        #: Number of leases that the broker had sent there before it sent what is read here now.
        self._leases_sent = 0
        #: Some of them may have to be read, so that blocks become free.
        self._awaits_leases = False
        #: Messages that did not decode or make no sense here.
        self.malformed = 0

    @property
    def is_turning(self) -> bool:
        """True while a thread, this one perhaps, is at the socket."""
        return self._lock.locked()

    # ---------------------------------------------------------------- asking

    def ask(
        self,
        row: wire.Request,
        body: bytes,
        blocks: list[wire.Block] | None = None,
        notify: Notify | None = None,
        held: Sequence[Any] = (),
    ) -> BlsCall:
        """Send a request, which gets its id here.

        With its final reply its blocks are freed and the held leases are released.
        """
        row = wire.make(wire.Request, (next(self._ids), *row[1:]))
        question = BlsCall(row, body, blocks, notify, held)
        if self._socket is None:
            with self._lock:
                self._has_asked = True
                if self._socket is None and not (self._is_closed or self._is_between):
                    self._connect()
        self._open[question.row.id] = question
        self._outgoing.append(question)
        self.turn()
        if self._is_closed:
            question.refuse(self._refusal)
        return question

    def refused(self, error: ZmqTritonError, notify: Notify | None = None) -> BlsCall:
        """Return a call that has failed because it cannot be sent."""
        question = BlsCall(_NOT_SENT, b"", notify=notify)
        question.refuse(error)
        return question

    def cancel(self, question: BlsCall) -> None:
        """Ask for no more replies; the final one comes all the same."""
        if not question.is_answered and not question.is_cancelled:
            question.is_cancelled = True
            self._outgoing.append(wire.Cancel([question.row.id]))
            self.turn()

    def drop(self, question: BlsCall) -> None:
        """Drop the replies to come; the other model may finish as if they were taken."""
        with self._changing:
            is_open = not (question.is_dropped or question.is_answered)
            question.is_dropped = True
            self.orphans += is_open
        for row, body in question.arrived():
            self.opened(row)
            self._discard(body)
        if is_open:
            self.grant(question, question.received)
            self._wake()

    def _discard(self, body: bytes) -> None:
        """Release what an unread reply refers to."""
        blocks = blocks_of(body)
        if blocks:
            self._memory.release(wire.Release(blocks))

    def opened(self, row: wire.Reply) -> None:
        """Forget the body of a reply: its blocks are mapped, or about to be released."""
        self._unopened.pop((row.id, row.number), None)

    def unopened_blocks(self) -> list[wire.Block]:
        """Return the blocks that unopened replies refer to."""
        return [block for body in list(self._unopened.values()) for block in blocks_of(body)]

    def open_blocks(self) -> list[wire.Block]:
        """Return the blocks that calls without a final reply refer to."""
        return [block for question in list(self._open.values()) for block in question.blocks]

    # --------------------------------------------------------------- waiting

    def wait(self, question: BlsCall) -> ReplyWithBody:
        """Block until the next reply is here, and return it."""
        try:
            answered = self.waits.wait(question)
        except BaseException:
            self.drop(question)
            raise
        if not question.is_answered:
            question.taken += 1
            is_ahead = question.taken - question.granted >= _STEP
            if not is_ahead and time.monotonic() - question.granted_s >= _GRANT_EVERY_S:
                question.granted_s = time.monotonic()
                self.turn()  # a slow reader does not read on before it has taken what is here
                is_ahead = question.received - question.granted >= _STEP
            if is_ahead:
                self._grant(question, question.taken)
                self.turn()
        return answered

    def grant(self, question: BlsCall, responses: int) -> None:
        """Tell the other model the number of responses that were taken in a fork, or dropped."""
        if not question.is_answered:
            self._grant(question, responses)
            self.turn()

    # ---------------------------------------------------------------- socket

    def leave(self) -> None:
        """Leave a broker that was replaced. From here on nothing comes of it any more."""
        with self._lock:
            self._is_between = True
            if self._socket is not None:
                self._take_all(self._socket)  # what it has answered must not be executed again
            self._disconnect()

    def follow(self, bootstrap: wire.Bootstrap) -> None:
        """Repeat calls without a final reply to the next broker."""
        with self._lock:
            self._bootstrap, self._is_between = bootstrap, False
            if self._has_asked:
                self._disconnect()
                self._connect()
        self.turn()

    def abandon(self) -> None:
        """Leave the connection to the parent after a fork; every call here is refused."""
        self._lock, self._changing = threading.Lock(), threading.RLock()
        self._is_closed, self._refusal = True, _FORKED
        if self._socket is not None:
            self._socket.abandon()
        refuse(self._open, _FORKED)

    def close(self) -> None:
        """Close; open calls get an error."""
        with self._lock:
            self._is_closed = True
            self._disconnect()
        refuse(self._open, _ENDED)

    def turn(self) -> None:
        """Send waiting messages and take arrived ones, unless another thread is just doing so."""
        outgoing, lock = self._outgoing, self._lock
        while lock.acquire(False):
            try:
                socket = self._socket
                if self._is_closed or socket is None:
                    return
                while outgoing:
                    self._put(socket, outgoing.popleft())
                socket.finish()
                self._take_all(socket)
                if not socket.is_open:
                    self._unwatch(socket)
            finally:
                lock.release()
            if self._awaits_leases:
                self._awaits_leases = False
                self.read_leases()
            if not outgoing:
                return

    def _connect(self) -> None:
        bootstrap = self._bootstrap
        self._leases_sent = 0
        self._socket = socket = self._dial(bootstrap)
        self._epoll.register(socket.fileno(), select.EPOLLIN)
        socket.put([wire.encode(wire.Hello(bootstrap.serial, bootstrap.token, bootstrap.epoch))])
        self._outgoing.clear()
        for question in list(self._open.values()):
            if question.is_sent:
                row = question.row
                question.row = row._replace(flags=row.flags | wire.RESENT)
                question.is_sent = False
            self._outgoing.append(question)
            if question.is_cancelled:
                self._outgoing.append(wire.Cancel([question.row.id]))

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._unwatch(self._socket)
            self._socket.close()
            self._socket = None

    def _unwatch(self, socket: Dealer) -> None:
        """Stop watching; nothing more comes from that broker."""
        with contextlib.suppress(FileNotFoundError):  # that was known already
            self._epoll.unregister(socket.fileno())

    def _put(self, socket: Dealer, item: _Item) -> None:
        if not isinstance(item, BlsCall):
            socket.put([wire.encode(item)])
        elif not item.is_sent:
            item.is_sent = True
            socket.put([wire.encode(wire.Infer([item.row])), item.body])

    def _grant(self, question: BlsCall, responses: int) -> None:
        question.granted, question.granted_s = responses, time.monotonic()
        grant = wire.StreamAck(self._bootstrap.serial, question.row.id, responses)
        self._outgoing.append(wire.StreamAcks([grant]))

    def _grant_again(self, question: BlsCall, row: wire.Reply) -> None:
        """Repeat the last grant if the other model asks for it: it may have died with the broker.

        Of a dropped call everything counts as taken.
        """
        if row.flags & wire.SENT:
            question.received = row.number
            self._grant(question, row.number if question.is_dropped else question.granted)

    def _take_all(self, socket: Dealer) -> None:
        while socket.has_input():
            self._take(socket.messages.popleft())

    def _take(self, frames: list[bytes]) -> None:
        try:
            message = wire.decode(frames[0])
        except ProtocolError:
            self.malformed += 1
            return
        if type(message) is wire.Replies and len(message.replies) == len(frames) - 1:
            for row, body in zip(message.replies, frames[1:]):
                question = self._open.get(row.id)
                if question is None:
                    self.malformed += 1
                else:
                    self._take_reply(question, row, body)
        elif type(message) is wire.LeasesSent:
            self._leases_sent, self._awaits_leases = message.leases, True
        elif type(message) is wire.WaitReport:
            self._tell_waits()
        elif type(message) is not wire.Welcome:
            self.malformed += 1

    def _tell_waits(self) -> None:
        awaits = self.standstill(self._tell_waits)
        if awaits:
            self._outgoing.append(wire.WaitReport(awaits[: wire.MAX_ROWS]))
            self.turn()

    def _take_reply(self, question: BlsCall, row: wire.Reply, body: bytes) -> None:
        with self._changing:
            # an answer of the broker itself has no number
            has_gap = row.source and row.number != question.received
            if not question.is_dropped and (has_gap or row.flags & wire.ABANDONED):
                if has_gap:
                    self._outgoing.append(wire.Cancel([row.id]))
                self.orphans += 1
                self._wake()
                question.give_up(_GAP if has_gap else from_number(row.code, row.text))
            if row.flags & (wire.ABANDONED | wire.SENT):
                self._grant_again(question, row)
                return
            question.received += 1
            if row.flags & wire.FINAL:
                question.is_answered = True
                del self._open[row.id]
                self.orphans -= question.is_dropped
            if not question.is_dropped:
                if body:
                    self._unopened[row.id, row.number] = body
                question.answer(row, body)
        if row.flags & wire.FINAL:
            self._memory.answered(question.blocks, self._leases_sent)
            question.held = ()
        if question.is_dropped:
            self._discard(body)
            if question.received % _STEP == 0:
                self._grant(question, question.received)
