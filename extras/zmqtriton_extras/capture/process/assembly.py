"""The requests of one frontend whose records are not complete yet."""

from __future__ import annotations

import os
import threading
from collections import Counter
from typing import Any, NamedTuple

from zmqtriton_extras.capture.frames import END, REQUEST, Frame


class Budget:
    """The bytes that all frontends' records and the writer hold. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held = 0
        self._lock = threading.Lock()

    def take(self, size: int) -> bool:
        """Reserve `size` bytes of the budget; False if too little is left."""
        with self._lock:
            if self.held + size > self._limit:
                return False
            self.held += size
            return True

    def make_way(self) -> None:
        """Give the processor to other processes, unless many bytes are waiting."""
        if self.held < self._limit >> 2:
            os.sched_yield()

    def give_back(self, size: int) -> None:
        with self._lock:
            self.held -= size


class Capture(NamedTuple):
    """All frames of a completed request."""

    request: Frame
    responses: list[Frame]
    end: dict[str, Any]
    #: Bytes of the budget that it holds; the writer gives them back.
    size: int


class _Open:
    def __init__(self, request: Frame) -> None:
        self.request = request
        self.responses: list[Frame] = []
        self.size = request.size


class Assembly:
    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._open: dict[int, _Open] = {}
        #: Requests that were dropped, here or by the frontend, by model.
        self.dropped: Counter[str] = Counter()

    def take(self, frame: Frame) -> Capture | None:
        """Take a frame; return the capture that it completes, or None."""
        if frame.kind == REQUEST:
            self.dropped.update(frame.details["dropped"])
            if self._budget.take(frame.size):
                self._open[frame.id] = _Open(frame)
            else:
                self.dropped[frame.details["model"]] += 1
            return None
        record = self._open.get(frame.id)
        if record is None:
            return None
        if frame.kind == END:
            del self._open[frame.id]
            if not frame.details["is_cut"]:
                return Capture(record.request, record.responses, frame.details, record.size)
            self._end(record)
        elif self._budget.take(frame.size):
            record.size += frame.size
            record.responses.append(frame)
        else:
            del self._open[frame.id]
            self._end(record)
        return None

    def close(self) -> None:
        """Drop incomplete records: their frontend has gone."""
        for record in self._open.values():
            self._end(record)
        self._open.clear()

    def _end(self, record: _Open) -> None:
        self._budget.give_back(record.size)
        self.dropped[record.request.details["model"]] += 1
