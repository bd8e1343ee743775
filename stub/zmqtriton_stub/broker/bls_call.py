"""Calls to other models, from the request to the final reply, and those who wait for the replies.

bls_client.py moves the calls on. Of the threads that wait one reads for all, and the others wait
for it; the main thread reads for itself, since it has other descriptors to attend to. While it is
busy with something else, the one that reads for all attends to those as well (duties.py).
"""

from __future__ import annotations

import queue
import select
import threading
import time
from types import MappingProxyType
from typing import Any, Callable, Dict, Iterator, Mapping, Sequence, Tuple

from zmqtriton_floor import wire
from zmqtriton_floor.arena import block_of
from zmqtriton_floor.errors import ProtocolError, ZmqTritonError
from zmqtriton_stub.broker.between_threads import Bell

#: A row of Replies and its body.
ReplyWithBody = Tuple[wire.Reply, bytes]
#: Called with a call that has got a reply.
Notify = Callable[[Any], None]
#: Descriptors that a thread attends to while it waits, and what to call for each.
Duties = Mapping[int, Callable[[], None]]


class BlsCall:
    """One request that this model has made, until its final reply."""

    __slots__ = (
        "bell",
        "blocks",
        "body",
        "granted",
        "granted_s",
        "held",
        "inbox",
        "is_answered",
        "is_cancelled",
        "is_dropped",
        "is_sent",
        "notify",
        "received",
        "row",
        "taken",
    )

    def __init__(
        self,
        row: wire.Request,
        body: bytes,
        blocks: list[wire.Block] | None = None,
        notify: Notify | None = None,
        held: Sequence[Any] = (),
    ) -> None:
        self.row = row
        self.body = body
        #: The blocks of the inputs, which belong to the other model until the final reply.
        self.blocks = blocks or []
        #: Keeps leases of others' memory until then.
        self.held = held
        #: Replies in order; None tells a waiting thread to read for all.
        self.inbox: queue.SimpleQueue[ReplyWithBody | None] = queue.SimpleQueue()
        #: Wakes the thread that polls for this call.
        self.bell: Bell | None = None
        #: Called after each reply, by the thread that took it.
        self.notify = notify
        self.is_sent = False
        self.is_answered = False
        self.is_cancelled = False
        #: True if no code of the model will take the replies.
        self.is_dropped = False
        #: Number of replies that have come, and number of those that the model has taken.
        self.received = 0
        self.taken = 0
        #: Number of taken replies that was last sent to the other model, and the time of that.
        self.granted = 0
        self.granted_s = time.monotonic()

    def answer(self, row: wire.Reply, body: bytes) -> None:
        self.inbox.put((row, body))
        bell = self.bell
        if bell is not None:
            bell.ring()
        if self.notify is not None:
            self.notify(self)

    def arrived(self) -> Iterator[ReplyWithBody]:
        """Take the replies that are here."""
        while not self.inbox.empty():
            answered = self.inbox.get()
            if answered is not None:
                yield answered

    def give_up(self, error: ZmqTritonError) -> None:
        """Let an error be the last reply that the model gets, before the final one has come."""
        self.is_dropped = self.is_cancelled = True
        self.refuse(error)

    def refuse(self, error: ZmqTritonError) -> None:
        """End the call with an error of our own as its final reply."""
        self.is_answered = True
        self.answer(wire.Reply(self.row.id, error.number, error.text, wire.FINAL), b"")


def blocks_of(body: bytes) -> list[wire.Block]:
    """Return the blocks that a response refers to."""
    try:
        outputs = wire.decode_response(body).outputs if body else []
    except ProtocolError:
        return []
    return [block_of(row.data) for row in outputs if type(row.data) is wire.Reference]


class ReplyWaits:
    """The threads that wait for replies; one of them reads for all."""

    def __init__(
        self,
        descriptor: int,
        turn: Callable[[], None],
        duties: Callable[[], Duties],
        attends: Callable[[Any], bool],
        beside: Duties = MappingProxyType({}),
    ) -> None:
        """Set up; `turn` reads what `descriptor` announces.

        `duties` are the main thread's; `attends` says whether an event loop of the main thread
        attends to them anyway. `beside` are those of all other threads that wait.
        """
        self._descriptor = descriptor
        self._turn = turn
        self._main_thread_handlers = duties
        self._attends = attends
        self._beside = beside
        self.main: BlsCall | None = None
        #: Threads except the main one; one of them reads for the others.
        self.threads: dict[int, BlsCall] = {}
        #: Futures that coroutines await.
        self.futures: dict[Any, BlsCall] = {}
        #: Number of calls that an event loop awaits, and the descriptors that it watches for them.
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
                        self._read_for(question, self._reading_bell, self._beside)
                    finally:
                        self._reading.release()
                answered = question.inbox.get()
                if answered is not None:
                    return answered
        finally:
            del self.threads[me]
            self._appoint()

    def _appoint(self) -> None:
        """Make a waiting thread read for all from now on, unless one does so already."""
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

    @property
    def handlers(self) -> Dict[int, Callable[[], None]]:
        """Return the descriptors of a thread other than the main one, and what to call for each."""
        return {self._descriptor: self._turn, **self._beside}

    def watch(self, loop: Any) -> None:
        """Let the event loop of this thread read replies; each call needs its unwatch()."""
        count, descriptors = self.loops.get(loop, (0, []))
        if not count:
            for gone in [other for other in list(self.loops) if other.is_closed()]:
                self.loops.pop(gone, None)
            looks = self.handlers
            if threading.get_ident() == self.main_thread:
                duties = {} if self._attends(loop) else self._main_thread_handlers()
                looks = {self._descriptor: self._turn, **duties}
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
