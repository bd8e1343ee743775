"""The BLS requests of this model on their way to the broker, and the replies to them.

Uses a line, as connection.py does, which is opened with the first call. Bodies are opaque here.
"""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any, Callable, Sequence, Union

from zmqtriton_floor import endpoints, wire
from zmqtriton_floor.errors import (
    InternalError,
    ProtocolError,
    Unavailable,
    ZmqTritonError,
    from_number,
)
from zmqtriton_stub.broker.bls_call import BlsCall, Notify, ReplyWithBody, blocks_of
from zmqtriton_stub.broker.line import BrokerLine
from zmqtriton_stub.memory.tensor_memory import TensorMemory
from zmqtriton_stub.watch import Watch

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


def refuse(calls: dict[int, BlsCall], error: ZmqTritonError) -> None:
    """Refuse all of these open calls."""
    for question in list(calls.values()):
        question.refuse(error)
    calls.clear()


class BlsClient:
    """The open calls of one instance; it connects with the first call."""

    def __init__(
        self,
        bootstrap: wire.Bootstrap,
        memory: TensorMemory | None,
        line: BrokerLine,
        watch: Watch,
        *,
        read_work: Callable[[], None] | None = None,
        report: Callable[[Callable[[], None]], list[wire.WaitEdge]] | None = None,
    ) -> None:
        """Set up; `read_work` reads the connection for batches, where leases also come.

        `report` returns what the batches wait for. If only another thread can see that, it returns
        nothing, and that thread calls its argument later.
        """
        self._bootstrap = bootstrap
        self._memory = memory
        self.line, self.watch = line, watch
        self._read_work = read_work
        self._report = report
        #: Why no call can be made any more.
        self._refusal = _ENDED
        #: The broker is dead, and the next one must not be asked yet.
        self._is_between = False
        #: Only the first call needs a connection.
        self._has_asked = False
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
        #: Number of leases that the broker had sent there before it sent what is read here now.
        self._leases_sent = 0
        #: Some of them may have to be read, so that blocks become free.
        self._awaits_leases = False
        #: Messages that did not decode or make no sense here.
        self.malformed = 0

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
        line = self.line
        if line.dealer is None:
            with line.lock:
                self._has_asked = True
                if line.dealer is None and not (line.is_closed or self._is_between):
                    self._connect()
        self._open[question.row.id] = question
        self._send(question)
        if line.is_closed:
            question.refuse(self._refusal)
        return question

    def refused(self, error: ZmqTritonError, notify: Notify | None = None) -> BlsCall:
        """Return a call that has failed because it could not be sent."""
        question = BlsCall(_NOT_SENT, b"", notify=notify)
        question.refuse(error)
        return question

    def cancel(self, question: BlsCall) -> None:
        """Request no more replies; the final one comes nevertheless."""
        if not question.is_answered and not question.is_cancelled:
            question.is_cancelled = True
            self._send(wire.Cancel([question.row.id]))

    def drop(self, question: BlsCall) -> None:
        """Drop the replies to come; to the other model they count as taken."""
        with self._changing:
            is_open = not (question.is_dropped or question.is_answered)
            question.is_dropped = True
            self.orphans += is_open
        for row, body in question.arrived():
            self.opened(row)
            self._discard(body)
        if is_open:
            self.grant(question, question.received)
            self.watch.wake()

    def _discard(self, body: bytes) -> None:
        """Release the blocks that an unread reply refers to."""
        blocks = blocks_of(body)
        if blocks and self._memory is not None:
            self._memory.release(blocks)

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
        """Block until the call's next reply has come, and return it."""
        try:
            answered = self.watch.wait(question, self.turn)
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
        """Grant the other model as many responses as a fork has taken, or as were dropped."""
        if not question.is_answered:
            self._grant(question, responses)
            self.turn()

    # ---------------------------------------------------------------- broker

    def leave(self) -> None:
        """Leave a replaced broker: from now on nothing is read from it."""
        line = self.line
        with line.lock:
            self._is_between = True
            while line.dealer is not None and line.dealer.has_input():
                # what it has answered must not be executed again
                self.take(line.dealer.messages.popleft())
            line.drop()

    def follow(self, bootstrap: wire.Bootstrap) -> None:
        """Repeat calls without a final reply to the next broker."""
        with self.line.lock:
            self._bootstrap, self._is_between = bootstrap, False
            if self._has_asked:
                self._connect()
        self.turn()

    def abandon(self) -> None:
        """Leave the connection to the parent after a fork; every call here is refused."""
        self._changing, self._refusal = threading.RLock(), _FORKED
        self.line.abandon()
        refuse(self._open, _FORKED)

    def close(self) -> None:
        """Close; open calls get an error."""
        self.line.close()
        refuse(self._open, _ENDED)

    def _send(self, item: _Item) -> None:
        self.line.outgoing.append(item)
        self.turn()

    def turn(self) -> None:
        """Send waiting messages and take arrived ones, unless another thread is doing it."""
        self.line.turn()
        # the thread that is at the socket comes to it behind that
        if self._awaits_leases and not self.line.lock.locked():
            self._awaits_leases = False
            if self._read_work is not None:
                self._read_work()

    def _connect(self) -> None:
        bootstrap, line = self._bootstrap, self.line
        self._leases_sent = 0
        line.connect(endpoints.requests_address(bootstrap.directory, bootstrap.epoch), self)
        line.begin([[wire.encode(wire.Hello(bootstrap.serial, bootstrap.token, bootstrap.epoch))]])
        line.outgoing.clear()
        for question in list(self._open.values()):
            if question.is_sent:
                row = question.row
                question.row = row._replace(flags=row.flags | wire.RESENT)
                question.is_sent = False
            line.outgoing.append(question)
            if question.is_cancelled:
                line.outgoing.append(wire.Cancel([question.row.id]))

    def ended(self) -> bool:
        """Keep the line: the supervisor reports the next broker."""
        return False

    def frames_of(self, item: _Item) -> list[bytes]:
        """Return a message; [] for a call that was sent when the connection was made."""
        if not isinstance(item, BlsCall):
            return [wire.encode(item)]
        if item.is_sent:
            return []
        item.is_sent = True
        return [wire.encode(wire.Infer([item.row])), item.body]

    def _grant(self, question: BlsCall, responses: int) -> None:
        question.granted, question.granted_s = responses, time.monotonic()
        self.line.outgoing.append(
            wire.StreamAcks([wire.StreamAck(self._bootstrap.serial, question.row.id, responses)])
        )

    def _grant_again(self, question: BlsCall, row: wire.Reply) -> None:
        """Repeat the last grant if the other model asks for it: a broker may have lost it.

        For a dropped call everything counts as taken.
        """
        if row.flags & wire.SENT:
            question.received = row.number
            self._grant(question, row.number if question.is_dropped else question.granted)

    def take(self, frames: list[bytes]) -> None:
        """Take a message; further ones may follow."""
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
        awaits = self._report(self._tell_waits) if self._report is not None else []
        if awaits:
            self._send(wire.WaitReport(awaits[: wire.MAX_ROWS]))

    def _let_go(self, question: BlsCall) -> None:
        """Free the inputs of a call that has its final reply."""
        if self._memory is not None:
            self._memory.answered(question.blocks, self._leases_sent)
        question.held = ()

    def _take_reply(self, question: BlsCall, row: wire.Reply, body: bytes) -> None:
        with self._changing:
            # an answer of the broker itself has no number
            has_gap = row.source and row.number != question.received
            if not question.is_dropped and (has_gap or row.flags & wire.ABANDONED):
                if has_gap:
                    self.line.outgoing.append(wire.Cancel([row.id]))
                self.orphans += 1
                self.watch.wake()
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
            self._let_go(question)
        if question.is_dropped:
            self._discard(body)
            if question.received % _STEP == 0:
                self._grant(question, question.received)
