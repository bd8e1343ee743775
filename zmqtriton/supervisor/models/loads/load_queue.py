"""The queue of one model's loads, which run one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from zmqtriton_floor.reasons import Kind, Reason


class QueuedLoad(Protocol):
    """A load, as far as the queue needs it."""

    @property
    def phase(self) -> str:
        """The phase that it is in, in words: what it waits for."""

    def begin(self) -> None: ...

    def cancel(self, why: Reason, *, has_failed: bool = False) -> None: ...

    def drop_version(self, number: int) -> None: ...


class LoadQueue:
    """The running load and those that wait for their turn."""

    def __init__(self) -> None:
        self._current: QueuedLoad | None = None
        self._waiting: deque[QueuedLoad] = deque()
        self._end_callbacks: list[Callable[[], None]] = []

    @property
    def is_loading(self) -> bool:
        return self._current is not None

    @property
    def phase(self) -> str:
        """The phase of the running load, in words, or ""."""
        return "" if self._current is None else self._current.phase

    def add(self, load: QueuedLoad) -> None:
        self._waiting.append(load)
        self._begin_next()

    def _begin_next(self) -> None:
        if self._current is None and self._waiting:
            self._current = self._waiting.popleft()
            self._current.begin()

    def call_at_end(self, then: Callable[[], None]) -> None:
        """Call `then` when no load is running any more."""
        self._end_callbacks.append(then)

    def load_ended(self, load: object) -> None:
        if self._current is load:
            self._current = None
            self._begin_next()
        if self._current is None:
            callbacks, self._end_callbacks = self._end_callbacks, []
            for then in callbacks:
                then()

    def drop_version(self, number: int) -> None:
        """Have the running load go on without a version that is being unloaded."""
        if self._current is not None:
            self._current.drop_version(number)

    def cancel_all(self, why: Reason) -> None:
        """Cancel every load: a model that hangs in its initialize must be stoppable."""
        loads = [*([self._current] if self._current else []), *self._waiting]
        self._waiting.clear()
        for load in loads:
            load.cancel(why)

    def cancel_current(self, why: Reason) -> bool:
        """Have the running load fail, if one runs, and begin the next; return whether one ran."""
        load = self._current
        if load is None:
            return False
        load.cancel(why, has_failed=True)
        return True

    def stop(self) -> None:
        """Cancel every load, since the server stops."""
        self.cancel_all(Reason.of(Kind.SERVER_STOPS, "Server exiting"))
