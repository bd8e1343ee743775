"""The stub's end of its lifeline: messages to the supervisor, and its answers.

Any thread may call. One thread reads for all that wait; messages that no thread waits for go into
an inbox for the main loop.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import threading
import time
from collections import deque
from typing import Any, Callable, Tuple

from zmqtriton_floor import wire
from zmqtriton_floor.errors import from_number
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_stub import tasks
from zmqtriton_stub.broker.between_threads import ThreadOutbox
from zmqtriton_stub.watch import Watch

#: The longest wait for an answer about a segment; the supervisor takes milliseconds.
_ANSWER_TIMEOUT_S = 5.0
#: Interval at which a thread that waits for a call looks whether a round of the loop is due.
_POLL_INTERVAL_S = 0.02

#: Messages to the main loop that come with a descriptor.
_CARRIERS = frozenset((wire.ReadinessLifeline, wire.StreamListener))

NO_ANSWER = "The supervisor did not answer in time."

#: Identifies what an answer belongs to: a segment by one or two numbers, a call by three.
Key = Tuple[int, ...]
#: The message, or the error in its place, and the descriptor; -1 if none came along.
Answer = Tuple[Any, int]


class _Waiter:
    """A thread that waits for an answer."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.answer: Answer | None = None


class SupervisorClient:
    """Sends messages over the lifeline and hands each answer to the thread that asked for it."""

    def __init__(
        self,
        lifeline: Lifeline,
        watch: Watch,
        on_end: Callable[[], None],
        subject: Callable[[], tasks.Subject | None],
    ) -> None:
        """Set up; the reading thread calls `on_end` when the lifeline has ended.

        `subject` returns the instance for tasks, which begin even while the main loop is busy.
        """
        #: Messages for the main loop.
        self.inbox: deque[Any] = deque()
        #: The last descriptor that came with a message of a kind and was not taken.
        self._descriptors: dict[type[Any], int] = {}
        #: Sends the supervisor a message; from any thread.
        self.send = ThreadOutbox(lifeline.send).put
        self._watch = watch
        self._on_end, self._subject = on_end, subject
        #: Functions by type of message, called by the thread that reads, with its descriptor.
        self._takers: dict[type[Any], Callable[[Any, int], object]] = {
            wire.SegmentCreated: self._segment_created,
            wire.CallResult: lambda result, _: self.settle((0, 0, result.id), (result, -1)),
            wire.Call: self._take_call,
        }
        self._lifeline = lifeline
        self._reading = threading.Lock()
        #: Several may wait for one answer.
        self._waiters: set[_Waiter] = set()
        self._call_numbers = itertools.count(1)

    def call(self, verb: str, arguments: str) -> Any:
        """Return the result of a control call, without a timeout. Raises the supervisor's error."""
        number = next(self._call_numbers)
        waiter = _Waiter((0, 0, number))
        self._waiters.add(waiter)
        self.send(wire.Call(number, verb, arguments))
        while waiter.answer is None:
            self._read_for(waiter, _POLL_INTERVAL_S)
            self._watch.poll()
        answer: wire.CallResult = waiter.answer[0]
        if answer.code:
            raise from_number(answer.code, answer.text)
        return json.loads(answer.result)

    def ask(self, question: Any, key: Key) -> Answer | None:
        """Return the answer to a question about a segment; None if it takes too long."""
        waiter = _Waiter(key)
        self._waiters.add(waiter)
        self.send(question)
        deadline = time.monotonic() + _ANSWER_TIMEOUT_S
        try:
            while waiter.answer is None:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return None
                self._read_for(waiter, left_s)
            return waiter.answer
        finally:
            self._waiters.discard(waiter)

    def deliver(self, message: Any, within_s: float = math.inf) -> None:
        """Send a message even while the main loop, which sends the rest of others, is busy."""
        self.send(message)
        deadline_s = time.monotonic() + within_s
        while self._lifeline.is_backed_up and time.monotonic() < deadline_s:
            time.sleep(_POLL_INTERVAL_S)  # not select(): descriptors may have great numbers
            self._lifeline.flush()

    def take_descriptor(self, kind: type[Any]) -> int:
        """Return, once, the last descriptor that came with such a message; else -1."""
        return self._descriptors.pop(kind, -1)

    def settle(self, key: Key, answer: Answer) -> bool:
        """Pass an answer to all threads that wait for it; False if none does."""
        waiters = [waiter for waiter in list(self._waiters) if waiter.key == key]
        self._waiters.difference_update(waiters)
        for waiter in waiters:
            waiter.answer = answer
        return bool(waiters)

    def receive(self) -> None:
        """Read arrived messages, unless another thread is reading."""
        if self._reading.acquire(False):
            try:
                self._receive()
            finally:
                self._reading.release()

    def await_message(self) -> None:
        """Wait until the inbox has a message, which any thread may have received."""
        with self._reading:
            while not self.inbox:
                self._lifeline.wait()
                self._receive()

    def _read_for(self, waiter: _Waiter, within_s: float) -> None:
        """Read once, or wait for the thread that reads."""
        if self._reading.acquire(timeout=within_s):
            try:
                if waiter.answer is None and self._lifeline.wait(within_s):
                    self._receive()
            finally:
                self._reading.release()

    def _receive(self) -> None:
        count = len(self.inbox)
        for message, descriptors in self._lifeline.receive():
            descriptor = descriptors.pop() if descriptors else -1
            for unexpected in descriptors:
                os.close(unexpected)
            self._takers.get(type(message), self._leave)(message, descriptor)
        if self._lifeline.ended:
            self._on_end()
        if len(self.inbox) > count:
            self._watch.wake()

    def subscribe(self, kind: type[Any], take: Callable[[Any, int], object]) -> None:
        """Let the reading thread call `take` with each message of this kind."""
        self._takers[kind] = take

    def _take_call(self, call: wire.Call, _: int) -> None:
        if call.verb == tasks.RUN:
            tasks.begin(self._subject(), self.deliver, call)
        else:
            self._leave(call)

    def _leave(self, message: Any, descriptor: int = -1) -> None:
        """Leave a message and its descriptor to the main loop."""
        if type(message) in _CARRIERS and descriptor >= 0:
            earlier = self.take_descriptor(type(message))
            self._descriptors[type(message)], descriptor = descriptor, earlier
        self.inbox.append(message)
        if descriptor >= 0:
            os.close(descriptor)

    def _segment_created(self, message: wire.SegmentCreated, descriptor: int) -> None:
        if self.settle((message.segment,), (message, descriptor)):
            return
        if descriptor >= 0:  # too late
            os.close(descriptor)
        if not message.code:
            self.send(wire.FreeSegment(message.segment))
