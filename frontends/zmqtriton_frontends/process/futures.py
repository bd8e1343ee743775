"""Tasks with an owner, the end of a wait for something that has no value, and callbacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


def wake(waiting: asyncio.Future[None] | None, *_: object) -> None:
    """Settle a future, if it is given and still waited for; may be another future's callback."""
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


class Tasks:
    """The tasks of an owner: kept until they end, and cancelled when the owner closes them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()


class Callbacks(list[Callable[..., object]]):
    """Functions to call, in order, at an event."""

    def __call__(self, *news: object) -> None:
        for call in self:
            call(*news)
