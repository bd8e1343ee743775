"""Decisions that take time, as coroutines: a story reads from its begin to its end.

A story continues as soon as the awaited value is there, inside the call that delivers the value. So
actions come in the order of the events, and the same events lead to the same actions. There is no
loop, no thread and no I/O: the plan has the time.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable
from typing import Any, Generic, TypeVar

from zmqtriton_floor.errors import ZmqTritonError

Value = TypeVar("Value")


class Promise(Generic[Value]):
    """A value that is there now or later. Its source calls it; only the first call counts."""

    def __init__(self) -> None:
        self._values: list[Value] = []
        self._waiting: list[Callable[[Value], object]] = []

    def __call__(self, value: Value = None) -> None:  # type: ignore[assignment]
        if not self._values:
            self._values.append(value)
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call(value)

    def __await__(self) -> Generator[Promise[Value], None, Value]:
        if not self._values:
            yield self
        return self._values[0]

    @property
    def is_kept(self) -> bool:
        return bool(self._values)

    def then(self, call: Callable[[Value], object]) -> None:
        """Call a function with the value: at once, or when the promise is kept."""
        if self._values:
            call(self._values[0])
        else:
            self._waiting.append(call)

    def forget(self, call: Callable[[Value], object]) -> None:
        """Do not call this any more."""
        if call in self._waiting:
            self._waiting.remove(call)


#: Outcome of something that can fail: None for success, or the error.
Result = Promise[ZmqTritonError | None]


def kept(value: Value) -> Promise[Value]:
    """Return a promise that already has its value."""
    promise = Promise[Value]()
    promise(value)
    return promise


def all_of(promises: Iterable[Promise[Any]]) -> Promise[None]:
    """Return a promise that is kept once all of these are kept."""
    return tell(_await_all([*promises]))


async def _await_all(promises: Iterable[Promise[Any]]) -> None:
    for each in promises:
        await each


class Change:
    """A condition that a story awaits: it is looked at whenever something has changed."""

    def __init__(self) -> None:
        self._is_so: Callable[[], bool] | None = None
        self._outcome = Promise[None]()

    def __call__(self) -> None:
        """Check the awaited condition again, as something has changed."""
        if self._is_so is not None and self._is_so():
            self._is_so = None  # a story that waits for other things is not asked
            self._outcome()

    async def until(self, is_so: Callable[[], bool]) -> None:
        if not is_so():
            self._is_so, self._outcome = is_so, Promise()
            await self._outcome


class Story(Promise[Value]):
    """A running coroutine: `begin` runs it until it awaits a value that is not there yet.

    The story's value is the return value of the coroutine.
    """

    def __init__(self) -> None:
        super().__init__()
        self._steps: Coroutine[Promise[Any], None, Value]
        self._is_waiting = self._is_cancelled = False

    def begin(self, steps: Coroutine[Promise[Any], None, Value]) -> Story[Value]:
        self._steps = steps
        self._go_on()
        return self

    def _go_on(self, _: object = None) -> None:
        self._is_waiting = False
        if self._is_cancelled:  # while it waited
            return
        try:
            awaited = self._steps.send(None)
        except StopIteration as end:
            self(end.value)
            return
        if self._is_cancelled:  # by what it has caused itself
            self._steps.close()
        else:
            self._is_waiting = True
            awaited.then(self._go_on)

    def cancel(self) -> None:
        """End the coroutine at its current wait; if it is running, at its next one."""
        self._is_cancelled = True
        if self._is_waiting:
            self._steps.close()


def tell(steps: Coroutine[Promise[Any], None, Value]) -> Story[Value]:
    """Begin a story; it is not to be cancelled."""
    return Story[Value]().begin(steps)
