"""Threads, coroutines and event loops that wait for replies to BLS requests.

Of the threads that wait one reads for all, and the others wait for it; the main thread reads for
itself, since it has other descriptors to attend to.
"""

from __future__ import annotations

import select
import threading
from typing import Any, Callable, Dict

from zmqtriton_stub.broker.bell import Bell
from zmqtriton_stub.broker.bls_call import BlsCall, ReplyWithBody

#: Descriptors that a thread attends to while it waits, and what to call for each.
Duties = Dict[int, Callable[[], None]]


class ReplyWaits:
    """The threads that wait for replies, one of which reads meanwhile."""

    def __init__(
        self,
        descriptor: int,
        turn: Callable[[], None],
        duties: Callable[[], Duties],
        attends: Callable[[Any], bool],
    ) -> None:
        """Set up; `turn` reads what `descriptor` announces.

        `duties` are the main thread's; `attends` says whether an event loop of the main thread
        attends to them anyway.
        """
        self._descriptor = descriptor
        self._turn = turn
        self._main_thread_handlers = duties
        self._attends = attends
        self.main: BlsCall | None = None
        #: Threads except the main one; one of them reads for the others.
        self.threads: dict[int, BlsCall] = {}
        #: Futures that coroutines await.
        self.futures: dict[Any, BlsCall] = {}
        #: For each event loop: for how many it watches, and the descriptors.
        self.loops: dict[Any, tuple[int, list[int]]] = {}
        #: The thread of the instance, which is the main one but where several share a process.
        self.main_thread = threading.get_ident()
        self._main_bell = Bell()
        #: Poll objects by bell; the duties that they include are always the same.
        self._pollers: dict[Bell, Any] = {}
        self._reading = threading.Lock()
        self._reading_bell = Bell()

    def of(self, thread: int | None) -> BlsCall | None:
        """The call that this thread waits for and that has no reply yet."""
        question = self.main if thread == self.main_thread else self.threads.get(thread or 0)
        return question if question is not None and question.inbox.empty() else None

    def wait(self, question: BlsCall) -> ReplyWithBody:
        """The next reply; blocks until it has arrived."""
        me = threading.get_ident()
        if me == self.main_thread:
            while True:
                self.main = question
                try:
                    self._read_for(question, self._main_bell, self._main_thread_handlers())
                finally:
                    self.main = None
                answered = question.inbox.get()
                if answered is not None:
                    return answered
        # Before looking whether a thread reads: one that stops reading sees us from here on.
        self.threads[me] = question
        try:
            while True:
                if question.inbox.empty() and self._reading.acquire(False):
                    try:
                        self._read_for(question, self._reading_bell, {})
                    finally:
                        self._reading.release()
                answered = question.inbox.get()
                if answered is not None:
                    return answered
        finally:
            del self.threads[me]
            self._appoint()

    def _appoint(self) -> None:
        """Let one of the waiting threads read from now on, if none does."""
        if self.threads and not self._reading.locked():
            for question in list(self.threads.values())[:1]:
                question.inbox.put(None)

    def _read_for(self, question: BlsCall, bell: Bell, duties: Duties) -> None:
        """Read replies, for all threads, until this call has its own."""
        if not question.inbox.empty():
            return
        poller = self._pollers.get(bell)
        if poller is None:
            poller = self._pollers[bell] = select.poll()
            for descriptor in (self._descriptor, bell.descriptor, *duties):
                poller.register(descriptor, select.POLLIN)
        while question.inbox.empty():
            question.bell = bell
            ready = poller.poll() if question.inbox.empty() else []
            question.bell = None
            for descriptor, _ in ready:
                if descriptor == bell.descriptor:
                    bell.silence()
                elif descriptor in duties:
                    duties[descriptor]()
            self._turn()

    def watch(self, loop: Any) -> None:
        """Let the event loop of this thread read replies; each call needs its unwatch()."""
        count, descriptors = self.loops.get(loop, (0, []))
        if not count:
            for gone in [other for other in list(self.loops) if other.is_closed()]:
                self.loops.pop(gone, None)
            looks: Duties = {self._descriptor: self._turn}
            if threading.get_ident() == self.main_thread and not self._attends(loop):
                looks.update(self._main_thread_handlers())
            for descriptor, look in looks.items():
                loop.add_reader(descriptor, look)
            descriptors = list(looks)
        self.loops[loop] = (count + 1, descriptors)

    def unwatch(self, loop: Any) -> None:
        count, descriptors = self.loops.pop(loop, (1, []))
        if count > 1:
            self.loops[loop] = (count - 1, descriptors)
        else:
            for descriptor in descriptors:
                loop.remove_reader(descriptor)
