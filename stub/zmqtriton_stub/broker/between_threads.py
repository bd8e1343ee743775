"""Items and wake-ups that threads pass to each other without waiting for a lock.

An item may even be sent by a destructor that the garbage collector runs during a send: a thread
that finds the lock taken leaves its item to the lock's holder, which looks again after releasing
the lock.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from typing import Any, Callable


class Bell:
    """Wakes the one thread that polls it."""

    def __init__(self) -> None:
        self.descriptor, self._other_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def ring(self) -> None:
        # a full pipe wakes it as well
        with contextlib.suppress(BlockingIOError):
            if self._other_end >= 0:
                os.write(self._other_end, b"\0")

    def silence(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.descriptor, 4096)

    def __del__(self) -> None:
        # not before: whoever may still ring would write to another's descriptor
        os.close(self.descriptor)
        os.close(self._other_end)
        self._other_end = -1  # a destructor of the same garbage may ring yet


class ThreadOutbox:
    """Passes items to `send` one at a time, in the order of their put()."""

    def __init__(self, send: Callable[[Any], None]) -> None:
        self._send = send
        self._items: deque[Any] = deque()
        self._lock = threading.Lock()

    def put(self, item: Any) -> None:
        items, lock = self._items, self._lock
        items.append(item)
        while items and lock.acquire(False):
            try:
                while items:
                    self._send(items.popleft())
            finally:
                lock.release()
