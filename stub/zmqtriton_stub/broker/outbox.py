"""Sends from any thread, even from a destructor that the garbage collector runs during a send.

Nobody waits for a lock here: a thread that finds it taken leaves its item to the one that holds it,
and that one looks again after letting go.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Callable


class Outbox:
    """Passes items to `send`, one at a time and in the order in which they were put."""

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
