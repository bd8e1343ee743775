"""Decisions that take time, as coroutines: a story reads from its begin to its end.

A story continues at the end of the event that gave it its value, never inside the call that did:
stories see an event's effects when it is over. They continue in the order of their values, so the
same events lead to the same actions. There is no loop, no thread and no I/O: the plan has the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from functools import partial
from typing import Any, Generic, TypeVar

from zmqtriton_floor.errors import Cancelled, InternalError, ZmqTritonError

Value = TypeVar("Value")


class Promise(Generic[Value]):
    """A value now or later, or an error in its place.

    Its source calls it, or lets it fail; only the first time counts. A coroutine that awaits it
    gets the value, or the error is raised.
    """

    def __init__(self) -> None:
        self.is_over = False
        #: The reason of a missing value.
        self.error: ZmqTritonError | None = None
        self._value: Value | None = None
        self._waiting: list[Callable[[], object]] = []

    def __call__(self, value: Value = None) -> None:  # type: ignore[assignment]
        if not self.is_over:
            self._value = value
            self._end()

    def fail(self, error: ZmqTritonError) -> None:
        if not self.is_over:
            self.error = error
            self._end()

    def _end(self) -> None:
        self.is_over = True
        for call in self._waiting:
            call()

    def __await__(self) -> Generator[Promise[Value], None, Value]:
        if not self.is_over:
            yield self
        return self.value

    @property
    def value(self) -> Value:
        """Return the value, once it is known. Raises the error of a failed promise."""
        if self.error is not None:
            raise self.error.with_traceback(None)
        return self._value  # type: ignore[return-value]

    def at_end(self, call: Callable[[], object]) -> None:
        """Call a function when the promise is over: now, or later inside the call that ends it."""
        if self.is_over:
            call()
        else:
            self._waiting.append(call)

    @staticmethod
    def kept(value: Value) -> Promise[Value]:
        """Return a promise that already has its value."""
        promise = Promise[Value]()
        promise(value)
        return promise


class All(Promise[None]):
    """Kept once all these promises are over, or have failed."""

    def __init__(self, promises: Iterable[Promise[Any]]) -> None:
        super().__init__()
        awaited = [*promises]
        self._missing = len(awaited) + 1
        for each in awaited:
            each.at_end(self._count)
        self._count()

    def _count(self) -> None:
        self._missing -= 1
        if not self._missing:
            self()


class Ready:
    """Stories that can continue, in the order of their values, and conditions of the others."""

    def __init__(self) -> None:
        #: Chooses among this many another one than the oldest: for tests of their orders.
        self.pick: Callable[[int], int] | None = None
        self._stories: deque[Story[Any]] = deque()
        self.add = self._stories.append
        #: The conditions that stories wait for, by the promise that each holds.
        self._conditions: dict[Promise[None], Callable[[], object]] = {}

    async def until(self, find: Callable[[], Value]) -> Value:
        """Wait until this returns something true at the end of an event; return that."""
        while not (value := find()):
            holds = Promise[None]()
            self._conditions[holds] = find
            try:
                await holds
            finally:
                self._conditions.pop(holds, None)
        return value

    def settle(self) -> None:
        """Continue stories until all of them wait."""
        while self._stories or self._find_holding():
            chosen = 0 if self.pick is None else self.pick(len(self._stories))
            story = self._stories[chosen]
            del self._stories[chosen]
            story.go_on()

    def _find_holding(self) -> bool:
        """Keep the promises of conditions that hold; return whether a story can continue."""
        for holds, find in [*self._conditions.items()]:
            try:
                is_over = bool(find())
            except Exception:  # noqa: BLE001 - its story asks again, and fails by it
                is_over = True
            if is_over:
                holds()
        return bool(self._stories)


class Scope:
    """The owner of stories, which end with it."""

    def __init__(self, ready: Ready) -> None:
        self._ready = ready
        self._stories: dict[Story[Any], None] = {}

    def tell(self, steps: Coroutine[Promise[Any], None, Value]) -> Story[Value]:
        """Begin a story: run it until it awaits an unknown value."""
        story = Story(steps, self._ready)
        self._stories[story] = None
        story.at_end(partial(self._stories.pop, story))
        story.go_on()
        return story

    def whenever(self, find: Callable[[], Value], act: Callable[[Value], object]) -> None:
        """Act each time that something is found, after a failure as well."""

        async def repeat() -> None:
            while True:
                value = await self._ready.until(find)
                try:
                    act(value)
                except Exception:
                    self.whenever(find, act)
                    raise

        self.tell(repeat())

    def cancel(self) -> None:
        """End all its stories at their present wait, or at their next one."""
        for story in [*self._stories]:
            story.cancel()


class Story(Promise[Value]):
    """A running coroutine: its result is the story's value, and its exception the story's error."""

    def __init__(self, steps: Coroutine[Promise[Any], None, Value], ready: Ready) -> None:
        super().__init__()
        self._steps = steps
        self._ready = ready
        self._is_running = self._is_cancelled = False

    def go_on(self) -> None:
        if self._is_cancelled:  # while it waited
            return
        self._is_running = True
        try:
            awaited = self._steps.send(None)
        except StopIteration as end:
            self(end.value)
            return
        except ZmqTritonError as error:
            self.fail(error)
            return
        except Exception:  # which whoever has begun the event logs
            self.fail(InternalError("an error of the server's own; report it with the log"))
            raise
        finally:
            self._is_running = False
        if self._is_cancelled:  # by what it has caused itself
            self._close()
        else:
            awaited.at_end(partial(self._ready.add, self))

    def cancel(self) -> None:
        self._is_cancelled = True
        if not self._is_running:
            self._close()

    def _close(self) -> None:
        self._steps.close()
        self.fail(Cancelled("its owner has ended"))
