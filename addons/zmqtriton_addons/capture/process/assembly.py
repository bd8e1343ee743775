"""The requests of one frontend whose records are not complete yet."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from zmqtriton_addons.capture.frames import END, REQUEST, Frame, size_of


class Budget:
    """The bytes that all frontends' records and the writer hold. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held = 0
        self._lock = threading.Lock()

    def take(self, size: int) -> bool:
        """Take this many bytes; False without room for them."""
        with self._lock:
            if self.held + size > self._limit:
                return False
            self.held += size
            return True

    def give_back(self, size: int) -> None:
        with self._lock:
            self.held -= size


class Capture(NamedTuple):
    """All frames of a request."""

    request: Frame
    responses: list[Frame]
    end: dict[str, Any]
    #: Its bytes of the budget, which the writer gives back.
    size: int


class _Open:
    def __init__(self, request: Frame, size: int) -> None:
        self.request = request
        self.responses: list[Frame] = []
        self.size = size


class Assembly:
    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._open: dict[int, _Open] = {}
        #: Requests that were dropped, here or by the frontend, by model.
        self.dropped: dict[str, int] = {}

    def take(self, frame: Frame) -> Capture | None:
        """Take a frame; return what it completes."""
        size = size_of(frame.tensors) + len(frame.details)
        if frame.kind == REQUEST:
            model = frame.details["model"]
            if frame.details["dropped"]:
                self._drop("", frame.details["dropped"])
            if self._budget.take(size):
                self._open[frame.id] = _Open(frame, size)
            else:
                self._drop(model)
            return None
        record = self._open.get(frame.id)
        if record is None:
            return None
        if frame.kind == END:
            del self._open[frame.id]
            if not frame.details["is_cut"]:
                return Capture(record.request, record.responses, frame.details, record.size)
            self._end(record)
        elif self._budget.take(size):
            record.size += size
            record.responses.append(frame)
        else:
            del self._open[frame.id]
            self._end(record)
        return None

    def close(self) -> None:
        """The frontend has gone: nothing completes what it has begun."""
        for record in self._open.values():
            self._end(record)
        self._open.clear()

    def _end(self, record: _Open) -> None:
        self._budget.give_back(record.size)
        self._drop(record.request.details["model"])

    def _drop(self, model: str, count: int = 1) -> None:
        self.dropped[model] = self.dropped.get(model, 0) + count
