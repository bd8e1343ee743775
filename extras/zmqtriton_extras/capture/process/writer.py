"""The thread that writes records, so that a slow target does not delay the process."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from zmqtriton_extras.capture.process.assembly import Budget, Capture

_log = logging.getLogger(__name__)

_LOG_EVERY_S = 60.0
_REST_S = 1.0


class Lost(Exception):
    """Raised with the number of lost records of each model, and the reason."""

    def __init__(self, models: Counter[str], text: str) -> None:
        super().__init__(text)
        self.models = models


class Target(Protocol):
    """A place for records, used by one thread; all methods but `open` count the records kept."""

    def open(self) -> None: ...

    def write(self, capture: Capture) -> Counter[str]: ...

    def rest(self) -> Counter[str]:
        """Continue open work while no record comes."""

    def close(self) -> Counter[str]: ...


class Writer:
    def __init__(self, target: Target, budget: Budget) -> None:
        self._target = target
        self._budget = budget
        self._queue: queue.SimpleQueue[Sequence[Capture] | None] = queue.SimpleQueue()
        #: Records by model.
        self.written: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self._logged_s = float("-inf")
        self._is_open = False
        # a disk that hangs must not keep the process
        self._thread = threading.Thread(target=self._run, name="capture", daemon=True)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def write(self, captures: Sequence[Capture]) -> None:
        self._queue.put(captures)

    def end(self) -> None:
        """End once all records so far are written."""
        self._queue.put(None)

    def _run(self) -> None:
        while True:
            try:
                captures = self._queue.get(timeout=_REST_S if self._is_open else None)
            except queue.Empty:
                self._count("", self._target.rest)
                continue
            if captures is None:
                break
            for capture in captures:
                self._count(capture.request.details["model"], partial(self._write, capture))
                self._budget.give_back(capture.size)
                self._budget.make_way()
        self._count("", self._target.close)

    def _write(self, capture: Capture) -> Counter[str]:
        if not self._is_open:
            self._target.open()
            self._is_open = True
        return self._target.write(capture)

    def _count(self, model: str, step: Callable[[], Counter[str]]) -> None:
        """Take a step, and count the kept and lost records; `model` is the record's model."""
        try:
            self.written += step()
        except Lost as error:
            self.failed += error.models
            self._log_error(error)
        except Exception as error:  # noqa: BLE001 - an edge: the next record may succeed
            self.failed += Counter([model])
            self._log_error(error)

    def _log_error(self, error: Exception) -> None:
        now_s = time.monotonic()
        if now_s - self._logged_s >= _LOG_EVERY_S:
            self._logged_s = now_s
            count = sum(self.failed.values())
            _log.warning("captures are dropped, %d so far: %s", count, error)
