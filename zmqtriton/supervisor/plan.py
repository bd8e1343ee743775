"""The core's shared plan: the current time, the actions to perform now, and the timers.

A part adds its actions here and need not return them through all the others. The caller of the core
sets the time, so that a test can let hours pass.
"""

from __future__ import annotations

import heapq
import itertools
import sys
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypeVar

from zmqtriton.supervisor.actions import Action, InBackground, Log
from zmqtriton.supervisor.story import Promise, Ready, Scope, Story
from zmqtriton_floor.errors import DeadlineExceeded, ZmqTritonError

Value = TypeVar("Value")
#: Context that keeps the error of a named block where it happened.
Guard = Callable[[str], AbstractContextManager[Any]]


class PlanTimer:
    """A call that is due later."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.callback = call

    def cancel(self) -> None:
        # The callback may hold much, and its time may be far off.
        self.callback = _nothing


def _nothing() -> None:
    """Do nothing: replaces a cancelled call."""


class Plan:
    """Actions in order, timers, and numbers that are never given twice."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s
        #: Stories that continue at the end of this event.
        self.ready = Ready()
        self.until = self.ready.until
        #: The owner of stories that end with the server.
        self.server = Scope(self.ready)
        self._actions: list[Action] = []
        self._timers: list[tuple[float, int, PlanTimer]] = []
        self._order = itertools.count()
        #: Returns a serial number for a process or a caller.
        self.new_serial: Callable[[], int] = partial(next, itertools.count(1))
        self.new_generation_number: Callable[[], int] = partial(next, itertools.count(1))
        # a server that takes over has asked the one before with lower numbers
        self.new_ticket: Callable[[], int] = partial(next, itertools.count(1 << 16))
        #: The answers to actions that are awaited, by ticket.
        self._expected: dict[int, Promise[Any]] = {}

    def enqueue(self, *actions: Action) -> None:
        self._actions.extend(actions)

    def log(
        self,
        level: str,
        text: str,
        raw: str = "",
        *,
        document: str = "",
        model: str = "",
        version: int = 0,
        instance: str = "",
        is_of_client: bool = False,
    ) -> None:
        """Log a text with a document in JSON, and below it another text as it is.

        Model, version and instance are the subject, if known. The number of lines that clients
        cause is limited.
        """
        caller = sys._getframe(1)
        place = caller.f_code.co_filename, caller.f_lineno
        self.enqueue(
            Log(level, text, *place, raw, document, model, version, instance, is_of_client)
        )

    def take_actions(self) -> list[Action]:
        """Settle, and take the actions since the last call."""
        self.ready.settle()
        actions, self._actions = self._actions, []
        return actions

    def scope(self) -> Scope:
        """Return an owner of stories."""
        return Scope(self.ready)

    def tell(self, steps: Coroutine[Promise[Any], None, Value]) -> Story[Value]:
        """Begin a story that ends with the server."""
        return self.server.tell(steps)

    def ask(
        self, make: Callable[[int], Action], ticket: int = 0, within_s: float = 0.0
    ) -> Promise[Any]:
        """Enqueue the action that is made for a ticket; return the promise of its answer.

        A ticket whose answer was taken may be used again. An answer that is late has failed.
        """
        ticket = ticket or self.new_ticket()
        answer = self._expected[ticket] = Promise()
        self.enqueue(make(ticket))
        if within_s:
            late = DeadlineExceeded(f"no answer within {within_s:g} s")
            answer.at_end(self.call_later(within_s, lambda: self.answer(ticket, late)).cancel)
        return answer

    def in_background(self, call: Callable[[], Any]) -> Promise[Any]:
        """Call a function that may be slow, and raises nothing, in a thread."""
        return self.ask(lambda ticket: InBackground(ticket, call))

    def forget(self, ticket: int) -> None:
        """Expect the answer no more."""
        self._expected.pop(ticket, None)

    def answer(self, ticket: int, result: Any) -> None:
        """Pass on the answer to an action, if it is still expected; an error is a failure."""
        answer = self._expected.pop(ticket, Promise())
        if isinstance(result, ZmqTritonError):
            answer.fail(result)
        else:
            answer(result)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> PlanTimer:
        timer = PlanTimer(call)
        heapq.heappush(self._timers, (self.now_s + delay_s, next(self._order), timer))
        return timer

    def pause(self, seconds: float) -> Promise[None]:
        """Return a promise that is kept after this time."""
        over = Promise[None]()
        self.call_later(seconds, over)
        return over

    async def within(self, seconds: float, promise: Promise[Any]) -> bool:
        """Wait for a promise, but no longer than this; return whether it is over."""
        late = self.pause(seconds)
        await self.until(lambda: promise.is_over or late.is_over)
        return promise.is_over

    def advance_to(self, now_s: float, guard: Guard = nullcontext) -> None:
        """Set the time, and make due calls; each is an event, and guarded by itself."""
        self.now_s = max(self.now_s, now_s)
        while self._timers and self._timers[0][0] <= self.now_s:
            timer = heapq.heappop(self._timers)[2]
            with guard("a timer"):
                timer.callback()
                self.ready.settle()

    def next_deadline_s(self) -> float | None:
        """Return the time when advance_to() has work to do again; None if nothing is due."""
        while self._timers and self._timers[0][2].callback is _nothing:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None
