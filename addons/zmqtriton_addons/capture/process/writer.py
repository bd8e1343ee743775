"""The thread that writes records, so that a slow disk does not hold up the process."""

from __future__ import annotations

import logging
import queue
import threading
import time

from zmqtriton_addons.capture.process.assembly import Budget, Capture
from zmqtriton_addons.capture.process.segments import Segments

_log = logging.getLogger(__name__)

_LOG_EVERY_S = 60.0


class Writer:
    def __init__(self, segments: Segments, budget: Budget) -> None:
        self._segments = segments
        self._budget = budget
        self._queue: queue.SimpleQueue[Capture | None] = queue.SimpleQueue()
        #: Records by model.
        self.written: dict[str, int] = {}
        self.failed: dict[str, int] = {}
        self._logged_s = float("-inf")
        self._is_open = False
        # a disk that hangs must not keep the process
        self._thread = threading.Thread(target=self._run, name="capture", daemon=True)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def write(self, capture: Capture) -> None:
        self._queue.put(capture)

    def end(self) -> None:
        """End once everything so far is written."""
        self._queue.put(None)

    def _run(self) -> None:
        while (capture := self._queue.get()) is not None:
            model = capture.request.details["model"]
            try:
                if not self._is_open:
                    self._segments.open()
                    self._is_open = True
                self._segments.write(capture)
                self.written[model] = self.written.get(model, 0) + 1
            except Exception as error:  # noqa: BLE001 - an edge: the next record may succeed
                self.failed[model] = self.failed.get(model, 0) + 1
                self._log_error(error)
            self._budget.give_back(capture.size)
        self._segments.close()

    def _log_error(self, error: Exception) -> None:
        now_s = time.monotonic()
        if now_s - self._logged_s >= _LOG_EVERY_S:
            self._logged_s = now_s
            count = sum(self.failed.values())
            _log.warning("captures are dropped, %d so far: %s", count, error)
