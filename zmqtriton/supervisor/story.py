"""Decisions that take time, as coroutines: a story reads from its begin to its end.

A story goes on in the moment in which what it awaits is there, inside the call that brings it. So
actions come in the order of the events, and the same events lead to the same actions. There is no
loop, no thread and no I/O: the plan has the time.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


class Promise(Generic[Value]):
    """A value that a story awaits. The value's source calls it; only the first call counts."""

    def __init__(self) -> None:
        self._values: list[Value] = []
        self._waiting: Callable[[], None] | None = None

    def __call__(self, value: Value = None) -> None:  # type: ignore[assignment]
        if not self._values:
            self._values.append(value)
            waiting, self._waiting = self._waiting, None
            if waiting is not None:
                waiting()

    def __await__(self) -> Generator[Promise[Value], None, Value]:
        if not self._values:
            yield self
        return self._values[0]

    def wake(self, waiting: Callable[[], None] | None) -> None:
        """Call this when the value is there; None: the story waits no more."""
        self._waiting = waiting


async def result_of(ask: Callable[[Promise[Value]], object]) -> Value:
    """Return what a function passes to the callback that it takes."""
    outcome = Promise[Value]()
    ask(outcome)
    return await outcome


class Change:
    """A condition that a story awaits: it is looked at whenever something has changed."""

    def __init__(self) -> None:
        self._is_so: Callable[[], bool] | None = None
        self._outcome = Promise[None]()

    def __call__(self) -> None:
        """Say that something has changed."""
        if self._is_so is not None and self._is_so():
            self._is_so = None  # a story that waits for other things is not asked
            self._outcome()

    async def until(self, is_so: Callable[[], bool]) -> None:
        if not is_so():
            self._is_so, self._outcome = is_so, Promise()
            await self._outcome


class Story:
    """Runs one coroutine: at once, until that awaits something that is not there."""

    def __init__(self) -> None:
        self._steps: Coroutine[Promise[Any], None, None]
        self._awaited: Promise[Any] | None = None
        self._is_cancelled = False

    def begin(self, steps: Coroutine[Promise[Any], None, None]) -> None:
        self._steps = steps
        self._go_on()

    def _go_on(self) -> None:
        self._awaited = None
        try:
            awaited = self._steps.send(None)
        except StopIteration:
            return
        if self._is_cancelled:  # by what it has caused itself
            self._steps.close()
        else:
            self._awaited = awaited
            awaited.wake(self._go_on)

    def cancel(self) -> None:
        """End it where it waits; while it runs, where it waits next."""
        self._is_cancelled = True
        awaited, self._awaited = self._awaited, None
        if awaited is not None:
            awaited.wake(None)
            self._steps.close()
