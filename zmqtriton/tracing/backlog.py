"""Spans that wait to be exported; beyond a limit the oldest are dropped. Does no I/O.

Used by two threads, the one that assembles traces and the one that sends them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any


class SpanBacklog:
    def __init__(self, max_waiting: int, max_sent: int, delay_s: float) -> None:
        self._max_waiting = max_waiting
        self._max_sent = max_sent
        self._delay_s = delay_s
        self._spans: deque[Any] = deque()
        self._condition = threading.Condition()
        #: When the first waiting span is sent, if there are not enough for a full message before.
        self._due_s = 0.0
        #: Nothing is sent before, however many wait.
        self._paused_until_s = 0.0
        self._is_over = False
        self._lost_count = 0

    def add(self, spans: Iterable[Any]) -> None:
        with self._condition:
            if not self._spans:
                self._due_s = time.monotonic() + self._delay_s
            self._spans.extend(spans)
            self._drop()
            self._condition.notify()

    def requeue(self, spans: list[Any], pause_s: float) -> None:
        """Put spans back that could not be sent but may be later."""
        with self._condition:
            self._spans.extendleft(reversed(spans))
            self._drop()
            self._paused_until_s = time.monotonic() + pause_s

    def close(self) -> None:
        """Let waiting traces be taken at once, and then nothing more."""
        with self._condition:
            self._is_over = True
            self._condition.notify()

    def take_batch(self) -> list[Any]:
        """Wait for the next spans to send, and take them; none at the end."""
        with self._condition:
            while not self._is_over and (wait_s := self._wait_s()) != 0:
                self._condition.wait(wait_s)
            count = min(len(self._spans), self._max_sent)
            taken = [self._spans.popleft() for _ in range(count)]
            self._due_s = time.monotonic() + self._delay_s
            return taken

    def count_lost(self, number: int) -> None:
        with self._condition:
            self._lost_count += number

    def pop_lost_count(self) -> int:
        """Return how many were lost since the last call."""
        with self._condition:
            lost, self._lost_count = self._lost_count, 0
            return lost

    def __len__(self) -> int:
        return len(self._spans)

    def _wait_s(self) -> float | None:
        """Return how long to wait; None until something changes."""
        if not self._spans:
            return None
        is_full = len(self._spans) >= self._max_sent
        due_s = max(self._paused_until_s, 0.0 if is_full else self._due_s)
        return max(0.0, due_s - time.monotonic())

    def _drop(self) -> None:
        while len(self._spans) > self._max_waiting:
            self._spans.popleft()
            self._lost_count += 1
