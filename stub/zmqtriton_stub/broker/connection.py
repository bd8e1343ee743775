"""The stub's connection to the broker: batches come in, outcomes go out, from any thread.

One lock guards the socket, and no thread waits for it: if it is taken, a thread leaves its work to
the one that holds it, and that one looks again after letting go. So a response may be sent by any
thread, even by a destructor that the garbage collector runs during a send. Waiting is the loop's,
and happens outside the lock. Knows nothing of models.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from typing import Any, Callable

import zmq

from zmqtriton_floor import wire
from zmqtriton_floor.arena import held
from zmqtriton_floor.errors import ProtocolError, Unavailable
from zmqtriton_floor.zmtp import Dealer
from zmqtriton_stub.broker.between_threads import Bell
from zmqtriton_stub.broker.unconfirmed_answers import UnconfirmedAnswers
from zmqtriton_stub.execution.response_counts import ResponseCounter
from zmqtriton_stub.execution.responses import OpenRequest, OutcomeWithBody, state_lock
from zmqtriton_stub.execution.streams import OpenStream, Publisher, coalesce
from zmqtriton_stub.instance import StubInstance

_RESCHEDULED = "the broker died before the rescheduled request could be executed again"
#: Time that sent messages get to be read by their receivers when the connection is closed.
_LINGER_MS = 1000
#: After this time a connection that ended before the broker's welcome is made again.
_RECONNECT_AFTER_S = 0.1


class BrokerConnection:
    """The DEALER to the broker, and the messages that have arrived on it."""

    def __init__(
        self,
        instance: StubInstance,
        watch: Callable[[int], object],
        unwatch: Callable[[int], object],
    ) -> None:
        """Set up; calls `watch` with the first descriptor once the loop must wait on it.

        `unwatch` is called when it is not any more.
        """
        self.instance = instance
        #: Set at the end: nothing can be sent any more.
        self.is_closed = False
        self._context: Any = None
        self._socket: Dealer | None = None
        self._lock = threading.Lock()
        #: The frames of messages, and single responses of streams, which may travel together.
        self._outgoing: deque[list[bytes] | OutcomeWithBody] = deque()
        self._publisher: Publisher | None = None
        #: The descriptors to wait on: the socket's, and the one that wakes the loop. After either,
        #: call turn(). The first is -1 without a broker.
        self.descriptor = -1
        self._watch, self._unwatch = watch, unwatch
        bell = Bell()
        self.wake_descriptor = bell.descriptor
        #: Makes the loop look again; from any thread.
        self.wake = bell.ring
        #: Takes back what wake() did.
        self.awake = bell.silence
        #: Batches that were not begun: their number and their requests.
        self.batches: deque[tuple[int, list[OpenRequest]]] = deque()
        #: Every request that is here and has no final outcome yet, by peer and id.
        self.pending: dict[tuple[int, int], OpenRequest] = {}
        #: Final answers that the broker may not have passed on yet.
        self.answered = UnconfirmedAnswers()
        #: The counters of streams' responses.
        self.tallies = ResponseCounter()
        #: Called by models that may be in a long execute(), to do what the loop would.
        self.poll_while_executing: Callable[[], None] = lambda: None
        self._postponed: deque[Callable[[], None]] = deque()
        #: When nothing was left to be received.
        self._dry_ns = time.monotonic_ns()
        #: Set by the loop before it looks for batches and waits.
        self.is_waiting = False
        #: The epoch of the broker that has welcomed us; -1 before the first.
        self.epoch = -1
        #: The hello, and what goes with it, may not have left wholly.
        self._has_introduction = False
        #: Messages that did not decode or make no sense here.
        self.malformed = 0
        #: When to say hello again, if so. A broker that has welcomed us notices the end of the
        #: connection itself.
        self._reconnect_at_s = 0.0
        self.must_reconnect = False

    def connect(self, address: str, hello: wire.Hello) -> None:
        """Say hello to a broker, with all that is here since the time of an earlier one.

        Requests that were not begun are forgotten: their senders repeat them.
        """
        measures = self.instance.measures
        with measures.lock, self._lock, state_lock:
            if self._socket is not None:
                self._lose(self._socket)
            self.epoch = -1
            self._forget_unbegun()
            self._socket = socket = Dealer(address)
            self._reconnect_at_s = time.monotonic() + _RECONNECT_AFTER_S
            self.must_reconnect = not socket.is_open
            if socket.is_open:
                self.descriptor = socket.fileno()
                self._watch(self.descriptor)
            # before what other threads may have put into the queue by now
            for frames in self._introduction(hello):
                socket.put(frames)
            for message in self._held():
                socket.put([wire.encode(message)])
            for frames in measures.introduce(self):
                socket.put(frames)
            socket.flush()
            self._has_introduction = True
        self.turn()

    def _lose(self, socket: Dealer) -> None:
        """Drop the connection; nothing more comes from that broker."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            self._unwatch(descriptor)
        socket.close()
        if self.epoch < 0:
            self._reconnect_at_s = time.monotonic() + _RECONNECT_AFTER_S
            self.must_reconnect = True

    @property
    def is_turning(self) -> bool:
        """True while a thread, this one perhaps, is at the socket."""
        return self._lock.locked()

    @property
    def reconnect_in_s(self) -> float:
        """The time until connect() has to be called again, if `must_reconnect`."""
        return max(0.0, self._reconnect_at_s - time.monotonic())

    def _forget_sequence(self, work: wire.BatchedRequest) -> None:
        """End a sequence that is over, with or without its END."""
        if self.instance.states is not None:
            self.instance.states.end(work.correlation)

    def _forget_unbegun(self) -> None:
        for _, batch in self.batches:
            for pending in batch:
                if not pending.has_run:
                    self.pending.pop(pending.route, None)
                else:
                    pending.is_rescheduled = True
        if self.instance.states is not None:
            self.instance.states.clear()  # sequences have died with that broker
        self.batches.clear()
        # numbers of the first responses that have not left, by stream
        unsent: dict[tuple[int, int], int] = {}
        for _ in range(len(self._outgoing)):
            item = self._outgoing.popleft()
            # Responses in the middle of a stream go on; what ends a request is told in the hello.
            if not isinstance(item, list) and not item[0].flags:
                self._outgoing.append(item)
                unsent.setdefault((item[0].peer, item[0].id), item[0].number)
        # the last responses may have died with the broker, and others may not follow for long
        for stream in list(self.pending.values()):
            if isinstance(stream, OpenStream):
                self._outgoing.appendleft(stream.doubt(unsent.get(stream.route)))
        for pending in [p for p in self.pending.values() if p.is_rescheduled]:
            pending.fail(_RESCHEDULED, Unavailable.number)  # what has run is not begun anew
            pending.leave_inputs()

    def _introduction(self, hello: wire.Hello) -> list[list[bytes]]:
        # in this order: a destructor may answer one of them at any moment
        received = list(self.pending)
        outcomes, bodies = self.answered.recall()
        self._doubt()
        answered_routes = {(outcome.peer, outcome.id) for outcome in outcomes}
        routes = [wire.RequestKey(*route) for route in received if route not in answered_routes]
        return hellos(hello._replace(received=routes, unconfirmed=outcomes), bodies)

    def _doubt(self) -> None:
        """Doubt the leases given out: the next broker knows only those that are reported to it."""
        memory, asker = self.instance.memory, self.instance.asker
        if memory is not None:
            if asker is not None:
                # a step of an ensemble may read them long after the call was refused
                memory.arena.leases.lend(memory.own(asker.open_blocks()))
            memory.arena.doubt_leases()

    def _held(self) -> list[wire.HeldBlocks]:
        """Return the blocks of other processes that are read here."""
        memory, asker = self.instance.memory, self.instance.asker
        blocks = [
            block for pending in list(self.pending.values()) for block in pending.hold_inputs()
        ]
        if memory is None:
            return held(blocks)
        # a reply that another thread opens just now is in one of them
        with memory.mappings.lock:
            return held(blocks + memory.held() + (asker.unopened_blocks() if asker else []))

    def publish(self, address: str, listener: int, *, is_timed: bool = False) -> None:
        """Publish responses of streams straight to frontends from now on.

        All but the first of each stream, if the broker is to know when that leaves.
        """
        with self._lock:
            self._context = zmq.Context()
            self._publisher = Publisher(self._context, address, listener, is_timed=is_timed)

    def listen(self, listener: int) -> None:
        """Take subscribers at another listener, if anything is published."""
        with self._lock:
            if self._publisher is None or self.is_closed:
                os.close(listener)
            else:
                self._publisher.listen(listener)
        self.turn(takes=False)  # another thread may have left its work to this one

    def abandon(self) -> None:
        """Leave the connection to the parent after a fork, and drop messages that are sent here."""
        self._lock = threading.Lock()
        self.is_closed = True
        self._outgoing.clear()
        if self._socket is not None:
            self._socket.abandon()

    def close(self) -> None:
        """End the connection, and drop later messages."""
        with self._lock:
            if self.is_closed:
                return
            self.is_closed = True
            if self._publisher is not None:
                self._publisher.close(_LINGER_MS)
            if self._socket is not None:
                self._socket.close(_LINGER_MS)
        if self._context is not None:
            self._context.term()

    def send(self, message: list[bytes]) -> None:
        self._outgoing.append(message)
        self.turn()

    def put(self, item: list[bytes] | OutcomeWithBody) -> None:
        """Queue a message, or a response of a stream; it leaves with the next turn()."""
        self._outgoing.append(item)

    def turn(self, *, takes: bool = True) -> None:
        """Send waiting messages and take arrived ones, unless another thread is just doing so.

        Without `takes` what has arrived may stay until next time.
        """
        outgoing, lock = self._outgoing, self._lock
        has_work = True
        while has_work and lock.acquire(False):
            try:
                if self.is_closed:
                    outgoing.clear()
                    return
                socket = self._socket
                assert socket is not None
                if outgoing or self._has_introduction:
                    self._has_introduction = False
                    while outgoing:
                        item = outgoing.popleft()
                        socket.put(item if isinstance(item, list) else self._join(item))
                    socket.flush()
                    if socket.is_blocked:
                        socket.finish()  # the model may be about to compute for long
                    takes = takes or not socket.is_writable  # the broker is dead
                # A batch is enough for now, since the answer to it leads here again; but what came
                # with it may cancel it.
                while takes and socket.has_input():
                    if self._take(socket.messages.popleft()) and not socket.messages:
                        break
                else:
                    if takes:
                        self._dry_ns = time.monotonic_ns()
                    if not socket.is_open and self.descriptor >= 0:
                        self._lose(socket)
            finally:
                lock.release()
            has_work = bool(outgoing)

    def is_broker_alive(self) -> bool:
        """True if the broker has not closed the connection, as its death does at once."""
        descriptor = self.descriptor
        if descriptor < 0:
            return False
        poller = select.poll()
        poller.register(descriptor, 0)  # an end is told unasked, before what is still to be read
        return not poller.poll(0)

    def wait(self, timeout_ms: int) -> None:
        """Wait until something may have arrived.

        Returns early or late if other threads look, too.
        """
        poller = select.poll()
        if self.descriptor >= 0:
            poller.register(self.descriptor, select.POLLIN)
        poller.poll(timeout_ms)

    def _join(self, first: OutcomeWithBody) -> list[bytes]:
        """Return a message with a stream's response and the next ones that can travel with it.

        It includes what else the broker is to know of responses. If all of them go straight to
        their readers there are no frames, and nothing is sent.
        """
        answers = coalesce(first, self._outgoing)
        if self._publisher is not None:
            answers = self._publisher.send(answers)
        if not answers:
            return []
        self._lend(answers)
        with state_lock:
            responses = self.tallies.take(is_last=not self.pending)
        header = wire.Results([outcome for outcome, _ in answers], [], [], responses)
        return [wire.encode(header), *[body for _, body in answers]]

    def tell_tallies(self) -> None:
        """Send the counters while streams last long; they leave with the next turn()."""
        with state_lock:
            responses = self.tallies.take(is_last=False)
        if responses:
            self.put([wire.encode(wire.Results([], [], [], responses))])

    def _lend(self, answers: list[OutcomeWithBody]) -> None:
        """Pass on leases. Responses in a stream leave.

        Those of a final answer are known already.
        """
        memory = self.instance.memory
        for outcome, _ in answers:
            if outcome.blocks and not outcome.flags and memory is not None:
                memory.arena.leases.send(memory.own(outcome.blocks))

    def postpone(self, step: Callable[[], None]) -> None:
        """Leave a step to the loop that a destructor cannot take, as it must not wait."""
        self._postponed.append(step)
        self.wake()

    def settle(self) -> None:
        """Take the steps of destructors; in the loop alone, which holds no lock."""
        while self._postponed:
            self._postponed.popleft()()

    def _take(self, frames: list[bytes]) -> bool:
        """Take a message; True if it brought a batch."""
        try:
            message = wire.decode(frames[0])
        except ProtocolError:
            self.malformed += 1
            return False
        kind = type(message)
        if kind is not wire.Execute or not 0 < len(message.requests) == len(frames) - 1:
            self._take_word(kind, message)
            return False
        memory = self.instance.memory
        if message.released and memory is not None:
            memory.arena.leases.take_back(memory.own(message.released))
        if not message.requests[0].flags & wire.ANSWERS_WAIT:
            with state_lock:
                self.answered.note_message(self._dry_ns)
        owed = OpenStream if self.instance.is_decoupled else OpenRequest
        batches: list[tuple[int, list[OpenRequest]]] = []
        for work, body in zip(message.requests, frames[1:]):
            if work.flags & wire.SEQUENCE_OVER:
                self._forget_sequence(work)
                continue
            pending = self.pending.get((work.peer, work.id))
            if pending is not None and pending.is_rescheduled:
                pending.resume(work, body)
            else:
                pending = owed(self, work, body)
                self.pending[pending.route] = pending
            if not batches or batches[-1][0] != work.batch:
                batches.append((work.batch, []))
            batches[-1][1].append(pending)
        self.batches.extend(batches)
        if self.is_waiting:
            self.wake()
        return bool(batches)

    def _take_word(self, kind: type[Any], message: Any) -> None:
        take = _WORDS.get(kind)
        if take is not None:
            take(self, message)
        elif self.instance.memory is None or not self.instance.memory.hear_of_blocks(message):
            self.malformed += 1


def _cancel(link: BrokerConnection, message: wire.CancelExecution) -> None:
    for pending in filter(None, map(link.pending.get, message.requests)):
        pending.cancel()


def _grant(link: BrokerConnection, message: wire.StreamAcks) -> None:
    for grant in message.acks:
        stream = link.pending.get((grant.peer, grant.id))
        if type(stream) is OpenStream:
            stream.grant(grant.responses, grant.passed)


def _take_welcome(link: BrokerConnection, message: wire.Welcome) -> None:
    link.epoch = message.epoch


#: Functions by type of the broker's messages. Batches, and messages about our blocks, are taken
#: elsewhere.
_WORDS: dict[type, Callable[[BrokerConnection, Any], object]] = {
    wire.CancelExecution: _cancel,
    wire.StreamAcks: _grant,
    wire.CallResult: lambda link, message: link.instance.measures.answered(message),
    wire.Welcome: _take_welcome,
    wire.Sync: lambda link, message: link.put([wire.encode(wire.Synced(message.number))]),
}


def hellos(hello: wire.Hello, bodies: list[bytes]) -> list[list[bytes]]:
    """Return the frames of messages that one receiver takes; all but the last are continued.

    Together they name all requests: the broker would have others executed again.
    """
    header = wire.encode(hello)
    rows = max(len(hello.received), len(hello.unconfirmed))
    fits = rows <= wire.MAX_ROWS and len(header) <= wire.MAX_HEADER_BYTES
    if fits or rows < 2:
        return [[header, *bodies]]
    middle = rows // 2
    first = hello._replace(
        received=hello.received[:middle], unconfirmed=hello.unconfirmed[:middle], is_continued=1
    )
    rest = hello._replace(received=hello.received[middle:], unconfirmed=hello.unconfirmed[middle:])
    return [*hellos(first, bodies[:middle]), *hellos(rest, bodies[middle:])]
