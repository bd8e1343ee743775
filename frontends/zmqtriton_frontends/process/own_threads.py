"""Threads for calls that may hang: the end of the process does not wait, unlike for asyncio's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

_T = TypeVar("_T")


async def in_own_thread(call: Callable[[], _T], name: str) -> _T:
    """Make a call in a thread of this name, and return its result. Raises its errors."""
    future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()

    def run() -> None:
        try:
            result = call()
        except Exception as error:  # noqa: BLE001 - the waiting coroutine gets it
            settle(future, None, error)
        else:
            settle(future, result)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await future


def settle(future: asyncio.Future[Any], result: Any, error: Exception | None = None) -> None:
    """Settle a future of a loop from another thread, unless it is done or its loop has ended."""
    with suppress(RuntimeError):  # the loop has ended
        future.get_loop().call_soon_threadsafe(settle_here, future, result, error)


def settle_here(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    """Settle a future in its loop's thread, unless it is done: its waiter may have left."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
