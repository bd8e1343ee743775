"""Threads for long work: bounded and named; they end soon after the work.

The process does not wait for them at its end, unlike for asyncio's threads: a call may hang.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from bisect import bisect
from collections import deque
from collections.abc import Callable
from contextlib import ContextDecorator, suppress
from typing import Any, TypeVar

from zmqtriton_floor.errors import Unavailable

#: Seconds that a thread waits for more work.
_IDLE_S = 1.0

_T = TypeVar("_T")
_Call = tuple["asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]


class Threads:
    """The threads of one kind of work: `count` at the same time, and `waiting` calls behind them.

    Further calls are refused. A call whose client leaves counts until its thread has finished.
    """

    def __init__(self, name: str, count: int, waiting: int = 0) -> None:
        self._name, self._count, self._bound = name, count, count + waiting
        self._lock = threading.Condition()
        self._waiting: deque[_Call] = deque()
        self._calls = self._threads = self._idle = 0

    def run(self, work: Callable[..., _T], *arguments: Any) -> asyncio.Future[_T]:
        """Run the work in a thread; return the future of its result. Raises Unavailable."""
        future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._calls >= self._bound:
                raise Unavailable(f"too many requests wait for '{self._name}'; retry later")
            if self._idle <= len(self._waiting) and self._threads < self._count:
                self._begin()
            self._calls += 1
            self._waiting.append((future, work, arguments))
            self._lock.notify()
        return future

    def _begin(self) -> None:
        try:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        except RuntimeError as error:  # no thread can begin now
            if not self._threads:
                raise Unavailable(f"no thread can begin for '{self._name}'; retry later") from error
        else:
            self._threads += 1

    def _work(self) -> None:
        while call := self._next():
            self._do(*call)
            del call  # a thread that waits keeps no work

    def _next(self) -> _Call | None:
        with self._lock:
            if not self._waiting:
                self._idle += 1
                self._lock.wait(_IDLE_S)
                self._idle -= 1
            if self._waiting:
                return self._waiting.popleft()
            self._threads -= 1
            return None

    def _do(self, future: asyncio.Future[Any], work: Callable[..., Any], arguments: Any) -> None:
        try:
            result = None if future.cancelled() else work(*arguments)
        except BaseException as error:  # noqa: BLE001 - the waiting coroutine gets it
            self._end(future, None, error)
        else:
            self._end(future, result)
        finally:
            del future, work, arguments  # an error keeps this frame

    def _end(self, *outcome: Any) -> None:
        with self._lock:
            self._calls -= 1
        self.settle(*outcome)

    @staticmethod
    def settle(
        future: asyncio.Future[Any], result: Any, error: BaseException | None = None
    ) -> None:
        """Settle a future from another thread, unless it is done or its loop has ended."""
        with suppress(RuntimeError):  # the loop has ended
            future.get_loop().call_soon_threadsafe(Threads.settle_here, future, result, error)

    @staticmethod
    def settle_here(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        """Settle a future in its loop's thread, unless it is done: its waiter may have left."""
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


#: Documents from these sizes on wait for each other only.
_LANES = (0, 1 << 20, 8 << 20)
#: Threads that read documents one after another, which also limits the memory that they take; but
#: no document waits for one that is much larger.
_lanes = [Threads(f"documents-{begin >> 20}-MiB", 1, 1024) for begin in _LANES]


#: Seconds after which garbage is collected again while documents overlap without end.
_UNCOLLECTED_S = 10.0


class _Uncollected(ContextDecorator):
    """Blocks garbage collection in threads, which would look at all objects that they read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks, self._begun, self._was_on = 0, 0.0, True

    def __enter__(self) -> None:
        with self._lock:
            if not self._blocks:
                self._begun, self._was_on = time.monotonic(), gc.isenabled()
                gc.disable()
            self._blocks += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._blocks -= 1
            is_over = not self._blocks or time.monotonic() > self._begun + _UNCOLLECTED_S
            if is_over and self._was_on:
                gc.enable()


_uncollected = _Uncollected()


async def aside(size: int, work: Callable[..., _T], *arguments: Any) -> _T:
    """Run work on `size` bytes in a thread, one call after the other, while the loop continues."""
    return await _lanes[bisect(_LANES, size) - 1].run(_uncollected(work), *arguments)
