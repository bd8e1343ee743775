"""The watch of an instance: its epolls, its bells, its waiting threads, and the right to rounds.

A **round** does all that the loop does except executing. The loop's thread has the right to run
rounds, and lends it while code of the model runs. In execute() that thread runs rounds whenever it
waits for the server: for a reply, room in a stream, an answer of the supervisor. It may also wait
for something of the model's own, such as the end of a thread, which in turn waits for the server.
If the broker dies then, nothing arrives any more, because only the lifeline reports the next
broker. So any thread that waits for the server runs a round as soon as the lifeline has a message,
if the right is free. Only the loop's thread waits for the right, at the end of the model's code.
Another thread that finds it taken has nothing to do: its holder handles everything that had arrived
when it began, and descriptors report later arrivals.

So the loop's own steps between two executions see one broker from beginning to end. The right comes
first in the order of locks, before the locks of metrics, of the connection to the broker or of
calls, and of responses. A thread that holds one of these locks takes the right only if it is free.

Of the threads that wait for replies one reads for all, and the others wait for it; the loop's
thread reads for itself, since it has other descriptors to look at. While the loop's thread is busy
with something else, the thread that reads for all looks at the lifeline as well.
"""

from __future__ import annotations

import contextlib
import select
import threading
import time
from typing import Any, Callable, Dict, Mapping, Protocol

from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_stub.broker.between_threads import Bell
from zmqtriton_stub.broker.bls_call import BlsCall, ReplyWithBody

_now_ns = time.monotonic_ns

_POLL_EVERY_NS = 20_000_000
#: Number of descriptors that the loop looks at; without it epoll makes room for a thousand.
MAX_READY = 4


class Rounds(Protocol):
    """The loop of an instance, as waiting threads use it."""

    def may_poll(self) -> bool:
        """Return whether a round may be run amid the code of this thread."""

    def run_round(self) -> None:
        """Do all the work of the loop except executing."""


class Watch:
    """The descriptors, waiting threads and event loops of one instance."""

    def __init__(self, rounds: Rounds | None = None, lifeline: Lifeline | None = None) -> None:
        """Set up, in the loop's thread; without a supervisor there are no rounds."""
        self._rounds = rounds
        self._lifeline = lifeline
        #: The thread of the instance, which is the main one but where several share a process.
        self.thread = threading.get_ident()
        #: Descriptors of the loop. Not a poll object: an event loop can wait on its descriptor.
        self.loop = select.epoll()
        #: Descriptors that other threads look at while they wait, to run a round.
        self._aside = select.epoll()
        #: The connection for replies, which changes with the broker.
        self.replies = select.epoll()
        bell = Bell()
        self.bell_descriptor = bell.descriptor
        #: Makes the loop look again; from any thread.
        self.wake = bell.ring
        #: Takes back what wake() did.
        self.awake = bell.silence
        #: True while the loop waits for more than messages: room at the supervisor, or replies.
        self.is_wide = self._is_backed_up = self._has_replies = False
        for epoll in (self.loop, self._aside):
            epoll.register(bell.descriptor, select.EPOLLIN)
            if lifeline is not None:
                epoll.register(lifeline, select.EPOLLIN)
        # Reentrant: a destructor may wait for a reply amid the loop's own steps. Methods of the
        # lock are our own: each request lends the right, and enters no function for it.
        right = threading.RLock()
        #: Takes the right to run rounds; the loop's thread may wait until another one is done.
        self.claim = right.acquire
        #: Gives the right back, once for each time that it was taken.
        self.give_back = right.release
        self.claim()
        self._next_poll_ns = 0
        #: The call that the loop's thread waits for.
        self._awaited: BlsCall | None = None
        #: Calls that other threads wait for; one thread reads for all.
        self.threads: dict[int, BlsCall] = {}
        #: Futures that coroutines await.
        self.futures: dict[Any, BlsCall] = {}
        #: Number of calls that an event loop awaits, and the descriptors that it looks at for them.
        self.loops: dict[Any, tuple[int, list[int]]] = {}
        #: The event loop of the model, which runs rounds by itself.
        self._served: Any = None
        self._own_bell, self._reading_bell = Bell(), Bell()
        #: Poll objects by bell; the descriptors that they include are always the same.
        self._pollers: dict[Bell, Any] = {}
        self._reading = threading.Lock()

    def close(self) -> None:
        """Close the loop's epolls; other descriptors end with the last thread that may use them."""
        self.loop.close()
        self._aside.close()

    # ---------------------------------------------------------------- rounds

    def run_round(self) -> None:
        """Run a round in this thread, unless another thread runs one."""
        if self._rounds is not None and self.claim(blocking=False):
            try:
                self._rounds.run_round()
            finally:
                self.give_back()

    def poll(self) -> None:
        """Run a round, unless one was run a moment ago; for code that may run for long."""
        now_ns = _now_ns()
        if now_ns >= self._next_poll_ns and self._rounds is not None and self._rounds.may_poll():
            self._next_poll_ns = now_ns + _POLL_EVERY_NS
            self.run_round()

    def follow(self, orphans: int) -> None:
        """Let the loop wait for room at the supervisor, and for replies to dropped calls."""
        lifeline = self._lifeline
        if lifeline is not None and lifeline.is_backed_up != self._is_backed_up:
            self._is_backed_up = not self._is_backed_up
            writable = select.EPOLLOUT if self._is_backed_up else 0
            self.loop.modify(lifeline, select.EPOLLIN | writable)
        if (orphans > 0) != self._has_replies:
            self._has_replies = not self._has_replies
            if self._has_replies:
                self.loop.register(self.replies, select.EPOLLIN)
            else:
                self.loop.unregister(self.replies)
        self.is_wide = self._is_backed_up or self._has_replies

    def forget_lifeline(self) -> None:
        """Stop looking at the lifeline in waiting threads: after its end it stays readable."""
        with contextlib.suppress(FileNotFoundError):  # that was known already
            self._aside.unregister(self._lifeline)  # type: ignore[arg-type]

    def serve(self, loop: Any, look: Callable[[], None]) -> None:
        """Let the model's event loop call `look` when there is work for a round."""
        self._served = loop
        loop.add_reader(self.loop.fileno(), look)

    # ---------------------------------------------------------------- replies

    def of(self, thread: int | None) -> BlsCall | None:
        """Return the unanswered call that this thread waits for; None without one."""
        question = self._awaited if thread == self.thread else self.threads.get(thread or 0)
        return question if question is not None and question.inbox.empty() else None

    def wait(self, question: BlsCall, turn: Callable[[], None]) -> ReplyWithBody:
        """Block until the next reply has come, and return it; `turn` reads the connection."""
        me = threading.get_ident()
        if me == self.thread:
            while True:
                self._awaited = question
                try:
                    self._read_for(question, turn, self._own_bell)
                finally:
                    self._awaited = None
                answered = question.inbox.get()
                if answered is not None:
                    return answered
        # Before looking whether a thread reads: one that stops reading sees us from here on.
        self.threads[me] = question
        try:
            while True:
                if question.inbox.empty() and self._reading.acquire(False):
                    try:
                        self._read_for(question, turn, self._reading_bell)
                    finally:
                        self._reading.release()
                answered = question.inbox.get()
                if answered is not None:
                    return answered
        finally:
            del self.threads[me]
            self._appoint()

    def _appoint(self) -> None:
        """Let a waiting thread read for all from now on, unless one already does."""
        if self.threads and not self._reading.locked():
            for question in list(self.threads.values())[:1]:
                question.inbox.put(None)

    def _read_for(self, question: BlsCall, turn: Callable[[], None], bell: Bell) -> None:
        """Read replies for all threads, until this call has its reply."""
        if not question.inbox.empty():
            return
        poller, looks = self._pollers.get(bell, (None, {}))
        if poller is None:
            poller, looks = select.poll(), self.looks(turn)
            for descriptor in (bell.descriptor, *looks):
                poller.register(descriptor, select.POLLIN)
            self._pollers[bell] = poller, looks
        while question.inbox.empty():
            question.bell = bell
            ready = poller.poll() if question.inbox.empty() else []
            question.bell = None
            for descriptor, _ in ready:
                if descriptor == bell.descriptor:
                    bell.silence()
                elif descriptor != self.replies.fileno():
                    looks[descriptor]()
            turn()

    def looks(self, turn: Callable[[], None]) -> Mapping[int, Callable[[], None]]:
        """Return the descriptors that this thread must poll while it waits, and their handlers."""
        epoll = self.loop if threading.get_ident() == self.thread else self._aside
        looks: Dict[int, Callable[[], None]] = {self.replies.fileno(): turn}
        if self._rounds is not None:
            looks[epoll.fileno()] = self.run_round
        return looks

    def add_loop(self, loop: Any, turn: Callable[[], None]) -> None:
        """Let the event loop of this thread read replies; each call needs its remove_loop()."""
        count, descriptors = self.loops.get(loop, (0, []))
        if not count:
            for gone in [other for other in list(self.loops) if other.is_closed()]:
                self.loops.pop(gone, None)
            looks = {self.replies.fileno(): turn} if loop is self._served else self.looks(turn)
            for descriptor, look in looks.items():
                loop.add_reader(descriptor, look)
            descriptors = list(looks)
        self.loops[loop] = (count + 1, descriptors)

    def remove_loop(self, loop: Any) -> None:
        count, descriptors = self.loops.pop(loop, (1, []))
        if count > 1:
            self.loops[loop] = (count - 1, descriptors)
        else:
            for descriptor in descriptors:
                loop.remove_reader(descriptor)
