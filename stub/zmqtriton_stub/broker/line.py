"""A connection to the broker that any thread may use without waiting.

One lock guards the socket: a thread that finds it taken leaves its work to the lock's holder, which
looks again after releasing the lock. So a message may be sent by any thread, even by a destructor
that the garbage collector runs during a send. Threads wait elsewhere (watch.py), and a speaker
handles the messages.
"""

from __future__ import annotations

import select
import threading
import time
from collections import deque
from typing import Any, Callable, Iterable, Protocol, Sequence

from zmqtriton_floor import wire
from zmqtriton_floor.zmtp import Dealer, await_events
from zmqtriton_stub.broker.between_threads import Bell

#: Takes a message and its bodies, in any thread; yields messages with theirs, which come next.
Answer = Callable[[Any, Sequence[bytes]], Iterable[Sequence[Any]]]


class Speaker(Protocol):
    """The owner of a connection; its methods are called by the thread that has the lock."""

    def frames_of(self, item: Any) -> list[bytes]:
        """Return the message for an item from the queue; [] sends nothing."""

    def take(self, frames: list[bytes]) -> bool | None:
        """Take a message; return True to stop reading for now."""

    def ended(self) -> bool:
        """Handle the end of the connection; return True if no other follows."""


class BrokerLine:
    def __init__(self, epoll: select.epoll, dial: Callable[[str], Any] = Dealer) -> None:
        """Set up; `epoll` has the descriptor of each open connection."""
        self._epoll = epoll
        self._dial = dial
        #: None before the first connection, and after drop().
        self.dealer: Dealer | None = None
        #: Taken while a thread, this one perhaps, is at the socket.
        self.lock = threading.Lock()
        #: Messages, and items of the speaker's; dropped while there is no connection.
        self.outgoing: deque[Any] = deque()
        #: The first messages of a connection may not have left wholly.
        self._has_first = False
        #: Nothing can be sent any more.
        self.is_closed = False
        #: The descriptor of the connection; -1 without one, or after its end.
        self.descriptor = -1
        #: When it was made, or has ended.
        self.changed_s = 0.0
        #: When nothing was left to be received: what is read next has come later.
        self.dry_ns = self._looked_ns = time.monotonic_ns()

    def connect(self, address: str, speaker: Speaker) -> bool:
        """Connect; the caller holds the lock. Returns True if there is a listener."""
        self.drop()
        self._speaker = speaker
        self.dealer = dealer = self._dial(address)
        self.changed_s = time.monotonic()
        if dealer.is_open:
            self.descriptor = dealer.fileno()
            self._epoll.register(self.descriptor, select.EPOLLIN)
        return self.descriptor >= 0

    def begin(self, messages: Sequence[list[bytes]]) -> None:
        """Send messages before those in threads' queue; the caller holds the lock."""
        assert self.dealer is not None
        for frames in messages:
            self.dealer.put(frames)
        self._has_first = True

    def drop(self, within_ms: int = 0) -> None:
        """End the connection; the caller holds the lock. Unwritten bytes get `within_ms`."""
        if self.dealer is not None:
            self._forget()
            self.dealer.close(within_ms)
            self.dealer = None

    def _forget(self) -> None:
        """Stop polling the connection: after its end it stays readable."""
        descriptor, self.descriptor = self.descriptor, -1
        self.changed_s = time.monotonic()
        if descriptor >= 0:
            self._epoll.unregister(descriptor)

    def abandon(self) -> None:
        """Leave the connection to the parent after a fork, and drop messages that are sent here."""
        self.lock = threading.Lock()
        dealer, self.dealer = self.dealer, None
        self.is_closed, self.descriptor = True, -1
        self.outgoing.clear()
        if dealer is not None:
            dealer.abandon()

    def close(self, within_ms: int = 0) -> None:
        """End the connection, and drop later messages."""
        with self.lock:
            self.is_closed = True
            self.drop(within_ms)

    def is_peer_alive(self) -> bool:
        """True if the broker has not closed the connection, as its death does at once."""
        # an end is told unasked, before what is still to be read
        return self.descriptor >= 0 and not await_events(self.descriptor, 0, 0)

    def wait(self, timeout_ms: int) -> None:
        """Wait until something may have arrived.

        Returns early or late if other threads also look.
        """
        await_events(self.descriptor, select.POLLIN, timeout_ms)

    def send(self, item: Any) -> None:
        self.outgoing.append(item)
        self.turn()

    def turn(self, *, takes: bool = True) -> None:
        """Send waiting messages and take arrived ones, unless another thread is doing it.

        Without `takes`, arrived messages may wait until next time.
        """
        outgoing, lock = self.outgoing, self.lock
        has_work = True
        while has_work and lock.acquire(False):
            try:
                dealer = self.dealer
                if dealer is None:
                    outgoing.clear()
                    return
                if outgoing or self._has_first:
                    self._has_first = False
                    while outgoing:
                        item = outgoing.popleft()
                        dealer.put(item if type(item) is list else self._speaker.frames_of(item))
                    dealer.flush()
                    if dealer.is_blocked:
                        dealer.finish()  # the model may be about to compute for long
                    takes = takes or not dealer.is_writable  # the broker is dead
                # A batch is enough for now, since the answer to it leads here again; but what came
                # with it may cancel it.
                messages = dealer.messages
                self._looked_ns = self._looked_ns if dealer.is_dry else time.monotonic_ns()
                while takes and (messages or not dealer.is_dry) and dealer.has_input():
                    if self._speaker.take(messages.popleft()) and not messages:
                        break
                else:
                    if takes:
                        dealer.is_dry = False
                        self.dry_ns = self._looked_ns
                    if not dealer.is_open and self.descriptor >= 0:
                        self._forget()
                        self.is_closed = self._speaker.ended()
            finally:
                lock.release()
            has_work = bool(outgoing)


class PlayedDealer:
    """A simulated connection to the broker: a message has arrived as soon as it is sent."""

    is_open = is_writable = True
    is_blocked = is_dry = False

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._bell = Bell()  # never rung: what comes is here before anybody waits
        self.messages: deque[list[bytes]] = deque()

    def fileno(self) -> int:
        return self._bell.descriptor

    def put(self, frames: Sequence[bytes]) -> None:
        if frames:
            for answer in self._answer(wire.decode(frames[0]), frames[1:]):
                self.say(*answer)

    def say(self, message: Any, *bodies: bytes) -> None:
        """Deliver a message from the broker."""
        self.messages.append([wire.encode(message), *bodies])

    def has_input(self) -> bool:
        return bool(self.messages)

    def flush(self) -> int:
        return 0

    def finish(self) -> None:
        """Do nothing: each message has arrived."""

    def close(self, within_ms: int = 0) -> None:
        self.messages.clear()

    abandon = close
