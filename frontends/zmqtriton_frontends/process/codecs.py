"""gzip and deflate, for HTTP bodies and gRPC messages; the callers word the errors.

A byte may become a thousand, so data are inflated in steps that never grow beyond the caller's
limit, and room is taken for a step before it is made. The first bodies of a connection are inflated
at once. A connection that has had more than that must wait for as long as its budget says, while
others do not wait.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Awaitable, Callable, Iterable
from mmap import MAP_PRIVATE, mmap
from typing import Any
from weakref import WeakKeyDictionary

from zmqtriton_floor.numbers import in_text
from zmqtriton_frontends.process.own_threads import Threads

#: The window bits of zlib for each coding.
_WINDOW = {"gzip": 31, "deflate": 15}
#: Level 1 does nine tenths of what 6 does to tensors and their JSON, in a third of the time.
_LEVEL = 1

CODINGS = frozenset(_WINDOW)


#: Bytes that zlib is given at a time: it copies those that it does not use.
_INPUT_BYTES = 64 << 10
#: Bytes that a connection may inflate: the burst, and the refill per second.
MAX_BYTES = 256 << 20
BYTES_PER_S = 64 << 20
#: Largest step, in bytes, that is not counted.
_FREE_BYTES = 1 << 20
#: Bytes that are inflated at once on the loop, and then at a time in a thread.
_FIRST_BYTES = 256 << 10
_STEP_BYTES = 4 << 20


class Inflating:
    """Compressed data, inflated step by step."""

    def __init__(self, data: bytes | bytearray | memoryview, coding: str) -> None:
        self._stream = zlib.decompressobj(_WINDOW[coding])
        self._left = memoryview(data)
        #: Nothing more comes.
        self.is_over = False

    @property
    def is_whole(self) -> bool:
        """True once the data have ended, if they were exactly one stream of the coding."""
        return self._stream.eof and not self._stream.unused_data and not self._left

    def step(self, max_bytes: int) -> bytes:
        """Return the next `max_bytes` bytes, or all remaining ones. May run in a thread."""
        stream, parts = self._stream, list[bytes]()
        while max_bytes and not self.is_over:
            data: Any = stream.unconsumed_tail
            if not data:
                data, self._left = self._left[:_INPUT_BYTES], self._left[_INPUT_BYTES:]
            try:
                part = stream.decompress(data, max_bytes)
            except zlib.error:
                self.is_over = True
                break
            parts.append(part)
            max_bytes -= len(part)
            self.is_over = stream.eof or not (part or self._left or stream.unconsumed_tail)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def deflate(pieces: Iterable[bytes | memoryview], coding: str) -> bytes:
    stream = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW[coding])
    return b"".join([*map(stream.compress, pieces), stream.flush()])


def choose(accepted: str) -> str:
    """Return the coding for a response to this Accept-Encoding; "" for no coding."""
    best, best_quality = "", 0.0
    for item in accepted[:1024].split(","):
        name, *attributes = (part.strip().lower() for part in item.split(";"))
        text = next((one[2:] for one in attributes if one.startswith("q=")), "1")
        quality = float(in_text(text) or 0)
        if (name in CODINGS or name == "identity") and quality > best_quality:
            best, best_quality = name, quality
    return "" if best == "identity" else best


class InflatingBudgets:
    """The bytes that each connection may inflate; negative after a body that was larger."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: Bytes that each connection had left, and the time of that.
        self._left: WeakKeyDictionary[object, tuple[float, float]] = WeakKeyDictionary()

    def spend(self, connection: object, size: int) -> None:
        """Count bytes that were inflated for a connection; small amounts are free."""
        if size > _FREE_BYTES:
            now = self._clock()
            self._left[connection] = (self._now_left(connection, now) - size, now)

    def wait_s(self, connection: object) -> float:
        """Return the seconds that the connection's next body has to wait."""
        return max(0.0, -self._now_left(connection, self._clock()) / BYTES_PER_S)

    async def wait(self, connection: object) -> None:
        if connection in self._left:
            await asyncio.sleep(self.wait_s(connection))

    def _now_left(self, connection: object, now: float) -> float:
        left, since = self._left.get(connection, (float(MAX_BYTES), now))
        return min(MAX_BYTES, left + (now - since) * BYTES_PER_S)


#: Budgets of the connections of this process.
budgets = InflatingBudgets()
#: Threads for large messages and pages. Each has room in the memory of its client.
threads = Threads("codecs", 4, 1024)


async def inflate(
    data: bytes | bytearray | memoryview,
    coding: str,
    max_bytes: int,
    client: object,
    *,
    hold: Callable[[int], None],
    aside: Callable[..., Awaitable[Any]] = threads.run,
) -> bytes | memoryview | None:
    """Inflate data; None if they are not exactly one stream of the coding.

    Returns more than `max_bytes` if the data hold more; the rest is not looked at. `hold` gets the
    size of each step before it is made, and raises if there is no room; after a shorter step it
    gets the difference as a negative number. `aside` calls a function in a thread.
    """
    await budgets.wait(client)
    inflating = Inflating(data, coding)
    hold(_FIRST_BYTES)
    part = inflating.step(_FIRST_BYTES)
    hold(len(part) - _FIRST_BYTES)
    if inflating.is_over:  # nearly always
        return part if inflating.is_whole or len(part) > max_bytes else None
    # the kernel moves it when it grows: on the heap each step would leave a hole
    whole = mmap(-1, len(part), flags=MAP_PRIVATE)
    whole.write(part)
    try:
        while not inflating.is_over and len(whole) <= max_bytes:
            hold(2 * _STEP_BYTES)  # zlib makes it in pieces, and then in one
            part = await aside(inflating.step, _STEP_BYTES)
            if part:
                whole.resize(len(whole) + len(part))
                whole.write(part)
            hold(len(part) - 2 * _STEP_BYTES)
            budgets.spend(client, len(part))
            await budgets.wait(client)
    except BaseException as error:
        # an error that is kept keeps this frame, and nothing in it has room any more
        whole.close()
        part = b""
        if isinstance(error, OSError):  # of resize()
            raise MemoryError from error
        raise
    return memoryview(whole) if inflating.is_whole or len(whole) > max_bytes else None
