"""Waiting for what another process will do, without guessing how long it takes."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: The longest that a busy machine is waited for, as a multiple of the time of an idle one.
_MAX_PATIENCE = 4.0

#: The limits are there for what never comes. Whatever a test thinks that something takes, the
#: machine may be busy with something else.
_MIN_TIMEOUT_S = 60.0
_LOOK_S = 0.02


def patience() -> float:
    """Return how many times as long as on an idle machine something may take just now."""
    load, _, _ = os.getloadavg()
    return min(max(1.0, load / (os.cpu_count() or 1)), _MAX_PATIENCE)


def eventually(predicate: Callable[[], T | None], within_s: float, message: str = "") -> T:
    """Return the first true value of the predicate.

    Raises AssertionError if there is none in that time, or in a minute; on a busy machine in
    several. With 0 it is called once.
    """
    within_s = max(within_s, _MIN_TIMEOUT_S) * patience() if within_s else within_s
    deadline = time.monotonic() + within_s
    pause = 0.005
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s} s: {message or predicate}")
        time.sleep(pause)
        # Quick at first, then seldom enough not to disturb what is waited for.
        pause = min(pause * 1.5, 0.2)


async def loop_turns(count: int = 30) -> None:
    """Let what is ready on this loop run, and what follows from it."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(holds: Callable[[], object]) -> None:
    """Let the loop turn until this is true; raise AssertionError if that takes a minute."""
    deadline = time.monotonic() + _MIN_TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, holds
        await asyncio.sleep(0)


def value_at_rest(value: Callable[[], int], still_s: float = 0.5) -> int:
    """Return the value when it has not changed for so long.

    Looks are counted, not time: while a busy machine lets nobody run, nobody looks either.
    """
    last, looks, needed = value(), 0, round(still_s / _LOOK_S)
    while looks < needed:
        time.sleep(_LOOK_S)
        now = value()
        last, looks = now, looks + 1 if now == last else 0
    return last


def sleep_of_this_thread(sleep: Callable[[float], object]) -> Callable[[float], None]:
    """Return what may stand for time.sleep(): others, which watch loops of other tests, go on."""
    thread, real_sleep = threading.get_ident(), time.sleep

    def choose(seconds: float) -> None:
        (sleep if threading.get_ident() == thread else real_sleep)(seconds)

    return choose
