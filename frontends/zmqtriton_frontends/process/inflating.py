"""Inflates what clients send, step by step: a byte may become a thousand.

There is room for a step before it is made. The first bodies of a connection are inflated at once;
who has had more than that waits, connection by connection, for as long as the budget says, and
nobody else does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakKeyDictionary

from zmqtriton_frontends.process import codecs

#: Bytes that a connection may inflate: the burst, and the refill per second.
MAX_BYTES = 256 << 20
BYTES_PER_S = 64 << 20
#: So little is not counted.
_FREE_BYTES = 1 << 20
#: How much is inflated on the loop, and then at a time in a thread.
_FIRST_BYTES = 256 << 10
_STEP_BYTES = 4 << 20
#: Steps are joined from that size on, which the kernel moves when it grows: what grows below it
#: leaves a hole in the heap with each step.
_JOINED_BYTES = 32 << 20


class InflatingBudgets:
    """The bytes that each connection has left; below 0 if a body was larger than that."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: What each has left, and when that was so.
        self._left: WeakKeyDictionary[object, tuple[float, float]] = WeakKeyDictionary()

    def spend(self, connection: object, size: int) -> None:
        """Take note that so many bytes were inflated for it."""
        if size > _FREE_BYTES:
            now = self._clock()
            self._left[connection] = (self._now_left(connection, now) - size, now)

    def wait_s(self, connection: object) -> float:
        """Return how long its next body has to wait."""
        return max(0.0, -self._now_left(connection, self._clock()) / BYTES_PER_S)

    async def wait(self, connection: object) -> None:
        if connection in self._left:
            await asyncio.sleep(self.wait_s(connection))

    def _now_left(self, connection: object, now: float) -> float:
        left, since = self._left.get(connection, (float(MAX_BYTES), now))
        return min(MAX_BYTES, left + (now - since) * BYTES_PER_S)


#: Of this process.
budgets = InflatingBudgets()


async def inflate(
    data: bytes | bytearray | memoryview,
    coding: str,
    max_bytes: int,
    client: object,
    *,
    hold: Callable[[int], None],
    aside: Callable[..., Awaitable[Any]] = asyncio.to_thread,
) -> bytes | bytearray | None:
    """Inflate data; None if they are not exactly one stream of the coding.

    More than `max_bytes` if they hold more than that: the rest is not looked at. `hold` is told of
    each step before it is made, and raises if there is no room for it; it is told of less when the
    step came to less. `aside` calls a function in a thread.
    """
    await budgets.wait(client)
    inflating = codecs.Inflating(data, coding)
    hold(_FIRST_BYTES)
    part = inflating.step(_FIRST_BYTES)
    hold(len(part) - _FIRST_BYTES)
    if inflating.is_over:  # nearly always
        return part if inflating.is_whole or len(part) > max_bytes else None
    parts, size = [part], len(part)
    whole = bytearray(b"")
    try:
        while not inflating.is_over and size <= max_bytes:
            hold(2 * _STEP_BYTES)  # zlib makes it in pieces, and then in one
            part = await aside(inflating.step, _STEP_BYTES)
            size += len(part)
            if whole:
                whole += part
            else:
                parts.append(part)
            hold(len(part) - 2 * _STEP_BYTES)
            if parts and size > _JOINED_BYTES:
                whole = _joined(parts, hold)
            budgets.spend(client, len(part))
            await budgets.wait(client)
    except BaseException:
        # whoever keeps the error keeps this frame, and nothing of it has room any more
        whole.clear()
        parts.clear()
        part = b""
        raise
    if not inflating.is_whole and size <= max_bytes:
        return None
    return whole or _joined(parts, hold)


def _joined(parts: list[bytes], hold: Callable[[int], None]) -> bytearray:
    """Return all of them in one piece, and keep none."""
    size = sum(map(len, parts))
    hold(size)
    whole = bytearray(size)
    at = 0
    for part in parts:
        whole[at : at + len(part)] = part
        at += len(part)
    parts.clear()
    hold(-size)
    return whole
