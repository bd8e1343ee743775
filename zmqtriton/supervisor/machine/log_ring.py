"""The last lines of the log, for `zmqtriton-ctl logs`, each with the model that it is about.

A handler of the root logger. Old lines are dropped when there are too many or they take too much
memory; line numbers tell a reader what it has missed.
"""

from __future__ import annotations

import logging
import os
import re
from collections import deque
from typing import Any, NamedTuple

from zmqtriton_floor.logs import LEVEL_NUMBERS

_MAX_LINES = 5000
_MAX_CHARACTERS = 1 << 20
_LETTERS = {number: letter for letter, number in LEVEL_NUMBERS.items()}


class StubName(NamedTuple):
    """The origin of a line that a model wrote; records carry it as `stub`."""

    model: str
    instance: str


class LogLine(NamedTuple):
    #: Counts all lines since the start, from 1.
    number: int
    time_s: float
    level: str
    pid: int
    #: Source file and line, or instance and line.
    file: str
    line: int
    model: str
    instance: str
    text: str


class LogRing(logging.Handler):
    def __init__(self, max_lines: int = _MAX_LINES, max_characters: int = _MAX_CHARACTERS) -> None:
        super().__init__()
        self._lines: deque[LogLine] = deque()
        self._max_lines = max_lines
        self._room = max_characters
        self._last = 0

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        if not text:
            return
        here = (os.getpid(), os.path.basename(record.pathname), record.lineno)
        pid, file, number = getattr(record, "origin", here)
        model, instance = getattr(record, "stub", StubName("", ""))
        self._last += 1
        letter = _LETTERS.get(record.levelno, "I")
        self._lines.append(
            LogLine(self._last, record.created, letter, pid, file, number, model, instance, text)
        )
        self._room -= len(text)
        while len(self._lines) > self._max_lines or (self._room < 0 and len(self._lines) > 1):
            self._room += len(self._lines.popleft().text)

    def read_last(self, model: str, after: int, limit: int) -> dict[str, Any]:
        """Return the last lines after this number, of all or of one model.

        `last` is the number to continue from; `lost` lines were dropped unread.
        """
        first = self._lines[0].number if self._lines else self._last + 1
        lost = max(0, first - after - 1) if after else 0
        found = [
            line for line in self._lines if line.number > after and _concerns_model(line, model)
        ]
        chosen = [line._asdict() for line in found[-limit:]]
        return {"lines": chosen, "last": self._last, "lost": lost}


def _concerns_model(line: LogLine, model: str) -> bool:
    """True if the line is of the model, or of the server and names the model."""
    if not model or line.model == model:
        return True
    name = rf"(?<![\w.-]){re.escape(model)}(?![\w-])"
    return not line.model and re.search(name, line.text) is not None


def attach() -> LogRing:
    """Create a ring that gets all records from now on."""
    ring = LogRing()
    logging.getLogger().addHandler(ring)
    return ring
