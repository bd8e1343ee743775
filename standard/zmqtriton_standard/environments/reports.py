"""Reports of steps that may take minutes: an archive, a copy from an object store, an installer.

The code of such a step tells a Reporter, which in a child process of the supervisor passes it on.
"""

from __future__ import annotations

import itertools
import time
from typing import Protocol

from zmqtriton.sdk.process import Lifeline, StepProgress
from zmqtriton.sdk.wire import wire

_MAX_CHARACTERS = 8192


class Reporter(Protocol):
    """Receives reports about steps as they are taken."""

    def log(self, level: str, text: str) -> None:
        """Take a line for the log; `level` is its letter."""

    def progress(self, latest: StepProgress) -> None:
        """Record the step that is running now, instead of the last one."""


class ByteCounter:
    """Reports how many bytes of a step are done: each percent, and now and then in the log."""

    LOG_EVERY_S = 5.0

    def __init__(self, title: str, total_bytes: int, reporter: Reporter) -> None:
        self._title = title
        self._total = max(1, total_bytes)
        self._reporter = reporter
        self._done_bytes = self._percent = 0
        self._next_log_s = time.monotonic() + self.LOG_EVERY_S
        reporter.progress(StepProgress(title, 0, self._total))

    def add(self, count: int) -> None:
        self._done_bytes += count
        latest = StepProgress(self._title, self._done_bytes, self._total)
        percent = 100 * self._done_bytes // self._total
        if percent != self._percent:
            self._percent = percent
            self._reporter.progress(latest)
        now_s = time.monotonic()
        if now_s >= self._next_log_s:
            self._next_log_s = now_s + self.LOG_EVERY_S
            self._reporter.log("I", str(latest))


class LifelineReporter:
    """Reports to the supervisor, for the call that it has made."""

    def __init__(self, line: Lifeline, call: int, origin: str) -> None:
        """Set up; in log lines, `origin` takes the place of the file."""
        self._line = line
        self._call = call
        self._origin = printable(origin)
        self._numbers = itertools.count(1)

    def log(self, level: str, text: str) -> None:
        self._line.send(wire.LogLine(level, self._origin, next(self._numbers), printable(text)))

    def progress(self, latest: StepProgress) -> None:
        self._line.send(
            wire.PreparationProgress(self._call, printable(latest.title), latest.done, latest.total)
        )


def printable(text: str) -> str:
    """Limit the length, and escape bytes that are no text: names of files may hold anything."""
    return text[:_MAX_CHARACTERS].encode("utf-8", "backslashreplace").decode()
