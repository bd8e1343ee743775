"""The requests from the broker, and their outcomes: reads the broker's messages, sends results.

Uses a line, which any thread may turn: methods that get a message, or that connect() calls, run
under the line's lock. Knows nothing of models.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import Any, Callable

from zmqtriton_floor import wire
from zmqtriton_floor.arena import held
from zmqtriton_floor.errors import ProtocolError, Unavailable
from zmqtriton_stub.broker.line import BrokerLine
from zmqtriton_stub.broker.unconfirmed_answers import UnconfirmedAnswers
from zmqtriton_stub.execution.response_counts import ResponseCounter
from zmqtriton_stub.execution.responses import (
    OpenRequest,
    OutcomeWithBody,
    RequestBatch,
    state_lock,
)
from zmqtriton_stub.execution.streams import OpenStream, Publisher, coalesce
from zmqtriton_stub.instance import StubInstance
from zmqtriton_stub.watch import Watch

#: Time that sent messages get to be read by their receivers when the connection is closed.
_LINGER_MS = 1000
#: After this time a connection that ended before the broker's welcome is made again.
_RECONNECT_AFTER_S = 0.1


class BrokerConnection:
    """The connection of the instance for its work: batches, outcomes, leases."""

    def __init__(
        self,
        instance: StubInstance,
        line: BrokerLine,
        watch: Watch,
        *,
        pending: dict[tuple[int, int], OpenRequest],
        publisher: Publisher | None = None,
    ) -> None:
        """Set up; responses of streams go through the publisher, if their readers subscribe.

        `pending` has every request without a final outcome, by peer and id.
        """
        self.instance = instance
        self.line = line
        self._watch = watch
        self._publisher = publisher
        #: Sends a message, or queues it, or a response of a stream, until the next turn().
        self.send, self.put = line.send, line.outgoing.append
        #: Sends what waits, and takes what has come; waits until something may have come.
        self.turn, self.wait = line.turn, line.wait
        #: Makes the loop look again; runs a round of the loop, if none was run for a while.
        self.wake, self.poll = watch.wake, watch.poll
        #: Batches that were not begun.
        self.batches: deque[RequestBatch] = deque()
        #: Batches that were begun, and that the broker waits for.
        self.executing: dict[int, RequestBatch] = {}
        self.look_after = 0
        self.pending = pending
        #: Final answers that the broker may not have passed on yet.
        self.answered = UnconfirmedAnswers()
        #: The counters of streams' responses.
        self.tallies = ResponseCounter()
        #: Steps of destructors, for settle().
        self.postponed: deque[Callable[[], None]] = deque()
        #: Set by the loop before it looks for batches and waits.
        self.is_waiting = False
        #: The epoch of the broker that has welcomed us; -1 before the first.
        self.epoch = -1
        #: Messages that did not decode or make no sense here.
        self.malformed = 0

    @property
    def is_closed(self) -> bool:
        """True at the end: nothing can be sent any more."""
        return self.line.is_closed

    @property
    def descriptor(self) -> int:
        """The descriptor of the connection; -1 without a broker."""
        return self.line.descriptor

    def connect(self, address: str, hello: wire.Hello) -> None:
        """Send a Hello to a broker, with everything that an earlier broker has left here.

        Requests that were not begun are forgotten: their senders repeat them.
        """
        measures, line = self.instance.measures, self.line
        with measures.lock, line.lock, state_lock:
            self.epoch = -1
            self._forget_unbegun()
            line.connect(address, self)
            # before what other threads may have put into the queue by now
            line.begin(
                [
                    *self._introduction(hello),
                    *([wire.encode(message)] for message in self._held()),
                    *measures.introduce(self),
                ]
            )
        self.turn()

    @property
    def reconnect_at_s(self) -> float | None:
        """The time to connect again, if the connection has ended before the broker's welcome.

        Otherwise None: a broker that has sent a welcome notices the end of a connection itself.
        """
        if self.epoch >= 0 or self.line.dealer is None or self.line.descriptor >= 0:
            return None
        return self.line.changed_s + _RECONNECT_AFTER_S

    def ended(self) -> bool:
        """Keep the line: the supervisor reports the next broker, or the loop connects again."""
        return False

    def is_busy(self) -> bool:
        """True in the thread that executes."""
        return bool(self.executing) and threading.get_ident() == self._watch.thread

    def _forget_sequence(self, work: wire.BatchedRequest) -> None:
        """End a sequence that is over, even without its END."""
        if self.instance.states is not None:
            self.instance.states.end(work.correlation)

    def _forget_unbegun(self) -> None:
        for batch in self.batches:
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
        outgoing = self.line.outgoing
        for _ in range(len(outgoing)):
            item = outgoing.popleft()
            # Responses in the middle of a stream go on; what ends a request is told in the hello.
            if not isinstance(item, list) and not item[0].flags:
                outgoing.append(item)
                unsent.setdefault((item[0].peer, item[0].id), item[0].number)
        # the last responses may have died with the broker, and others may not follow for long
        for stream in list(self.pending.values()):
            if isinstance(stream, OpenStream):
                outgoing.appendleft(stream.doubt(unsent.get(stream.route)))
        for pending in [p for p in self.pending.values() if p.is_rescheduled]:
            pending.fail(
                "the broker died before the rescheduled request could be executed again",
                Unavailable.number,
            )  # what has run is not begun anew
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
        """Doubt the granted leases: the next broker knows only leases that are reported to it."""
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

    def listen(self, listener: int) -> None:
        """Accept subscribers at another listener, if anything is published."""
        with self.line.lock:
            if self._publisher is None or self.is_closed:
                os.close(listener)
            else:
                self._publisher.listen(listener)
        self.turn(takes=False)  # another thread may have left its work to this one

    def close(self) -> None:
        """End the connection, and drop later messages."""
        with self.line.lock:
            publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.close(_LINGER_MS)
        self.line.close(_LINGER_MS)

    def frames_of(self, first: OutcomeWithBody) -> list[bytes]:
        """Return a message with a stream's response and the next ones that can travel with it.

        It includes everything that the broker must know about responses. If all responses go
        directly to their readers, there are no frames, and nothing is sent.
        """
        answers = coalesce(first, self.line.outgoing)
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
        """Send the counters of long streams now and then; they leave with the next turn()."""
        with state_lock:
            responses = self.tallies.take(is_last=False)
        if responses:
            self.put([wire.encode(wire.Results([], [], [], responses))])

    def _lend(self, answers: list[OutcomeWithBody]) -> None:
        """Report the leases of responses in a stream that are sent.

        Those of a final answer are known already.
        """
        memory = self.instance.memory
        for outcome, _ in answers:
            if outcome.blocks and not outcome.flags and memory is not None:
                memory.arena.leases.send(memory.own(outcome.blocks))

    def postpone(self, step: Callable[[], None]) -> None:
        """Leave a step to the loop, for a destructor, which must not wait."""
        self.postponed.append(step)
        self.wake()

    def settle(self) -> None:
        """Take the postponed steps of destructors; only in the loop, which holds no lock."""
        while self.postponed:
            self.postponed.popleft()()

    def take(self, frames: list[bytes]) -> bool:
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
        works, released = message
        instance, every, answered = self.instance, self.pending, self.answered
        if released and instance.memory is not None:
            instance.memory.arena.leases.take_back(instance.memory.own(released))
        dry_ns, is_read = self.line.dry_ns, not works[0].flags & wire.ANSWERS_WAIT
        if is_read and dry_ns >= answered.look_at_ns:
            with state_lock:
                answered.note_message(dry_ns)
        owed = OpenStream if instance.is_decoupled else OpenRequest
        batches: list[RequestBatch] = []
        for work, body in zip(works, frames[1:]):
            number, peer, own_id, flags, _, _, _, _, _ = work
            if flags & wire.SEQUENCE_OVER:
                self._forget_sequence(work)
                continue
            route = peer, own_id
            pending = every.get(route)
            if pending is not None and pending.is_rescheduled:
                pending.resume(work, body)
            else:
                pending = every[route] = owed(self, work, body)
            if not batches or batches[-1].number != number:
                batches.append(RequestBatch())
                batches[-1].number = number
            batches[-1].append(pending)
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
    """Return the frames of one or several Hellos; all but the last announce another.

    Together they name all requests, because the broker lets others execute missing ones.
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
