"""The last lines of the log, for `zmqtriton-ctl logs`, each with the model that it is about.

Of each process of a model the last ones are kept apart, so that the cause of a death stays. A
handler of the root logger, which also gets the written lines of the server's other processes, from
the thread that reads their output. Old lines are dropped when there are too many or they take too
much memory; line numbers tell a reader what it has missed.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from zmqtriton_floor.logs import LEVEL_NUMBERS, name_requests

_MAX_LINES = 5000
_MAX_CHARACTERS = 1 << 20
#: Lines kept for each process of an instance, until two successors have logged.
_LINES_OF_PROCESS = 100
_PROCESSES_OF_INSTANCE = 3
_CHARACTERS_OF_LINE = 1000
#: Beyond that, processes that have been silent for the longest are forgotten.
_MAX_PROCESSES = 1000
_LETTERS = {number: letter for letter, number in LEVEL_NUMBERS.items()}


#: A line that another process has written (zmqtriton_floor.logs), behind journald's mark.
_HEAD = re.compile(
    r"(?:<\d>)?(?:(?P<letter>[IWE])\d{4} [\d:.]+|\d{4}-\S+Z (?P<level>[IWE]))"
    r" (?P<pid>\d+) (?P<file>[^\s:]+):(?P<line>\d+)\] (?P<text>.*)"
)
_MARK = re.compile(r"<\d>")


class StubName(NamedTuple):
    """The origin of a line that a model wrote; records carry it as `stub`."""

    model: str
    instance: str
    version: int = 0


class KeptLine(NamedTuple):
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
    version: int = 0
    #: The spans of traced requests: traceparents, with blanks between them.
    traces: str = ""


class LogRing(logging.Handler):
    def __init__(self, max_lines: int = _MAX_LINES, max_characters: int = _MAX_CHARACTERS) -> None:
        super().__init__()
        self._lines: deque[KeptLine] = deque()
        self._max_lines = max_lines
        self._room = max_characters
        self._last = 0
        self._started_s = time.time()
        self._processes = ProcessLines()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        if text:
            here = (os.getpid(), os.path.basename(record.pathname), record.lineno)
            pid, file, number = getattr(record, "origin", here)
            model, instance, version = getattr(record, "stub", StubName("", ""))
            self._add(
                KeptLine(
                    0,
                    record.created,
                    _LETTERS.get(record.levelno, "I"),
                    pid,
                    file,
                    number,
                    model,
                    instance,
                    text,
                    version,
                    getattr(record, "traces", ""),
                )
            )

    def keep_written(self, data: bytes, pid: int) -> None:
        """Keep lines that a process of the server has written; for the thread that reads them."""
        now_s = time.time()
        for written in data.decode("utf-8", "replace").splitlines():
            if written.strip():
                line = read_written(written, pid, now_s)
                with self._held():
                    self._add(line)

    def _add(self, line: KeptLine) -> None:
        """Number a line and keep it; the lock is held."""
        self._last += 1
        line = line._replace(number=self._last)
        self._lines.append(line)
        if line.instance:
            self._processes.add(line)
        self._room -= len(line.text)
        while len(self._lines) > self._max_lines or (self._room < 0 and len(self._lines) > 1):
            self._room += len(self._lines.popleft().text)

    def read_last(self, model: str, after: int, limit: int) -> dict[str, Any]:
        """Return the last lines after this number, of all or of one model.

        `last` is the number to continue from; `lost` lines were dropped unread. With another
        `started_s` it is another server's log, whose lines have numbers of their own.
        """
        with self._held():
            first = self._lines[0].number if self._lines else self._last + 1
            lines = [
                line for line in self._lines if line.number > after and _concerns_model(line, model)
            ]
            return {
                "lines": [line._asdict() for line in lines[-limit:]],
                "last": self._last,
                "lost": max(0, first - after - 1) if after else 0,
                "begins_s": self._lines[0].time_s if first > 1 and self._lines else 0.0,
                "started_s": self._started_s,
            }

    @contextmanager
    def _held(self) -> Iterator[None]:
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def process_lines(self, model: str) -> list[dict[str, Any]]:
        """Return the kept lines of each process of this model, or of all, the newest last."""
        return self._processes.describe(model)


class ProcessLines:
    """The last lines of each process of a model, also after its death.

    They stay when other models have filled the ring.
    """

    def __init__(self, max_processes: int = _MAX_PROCESSES) -> None:
        #: Lines by process, in the order of the last line of each.
        self._lines: dict[tuple[StubName, int], deque[KeptLine]] = {}
        self._max_processes = max_processes

    def add(self, line: KeptLine) -> None:
        key = (StubName(line.model, line.instance), line.pid)
        lines = self._lines.pop(key, None)
        if lines is None:
            lines = deque(maxlen=_LINES_OF_PROCESS)
            self._drop_oldest(key[0])
        is_long = len(line.text) > _CHARACTERS_OF_LINE
        lines.append(line._replace(text=line.text[:_CHARACTERS_OF_LINE]) if is_long else line)
        self._lines[key] = lines

    def _drop_oldest(self, instance: StubName) -> None:
        """Make room for another process of this instance."""
        same = [key for key in self._lines if key[0] == instance]
        if len(same) >= _PROCESSES_OF_INSTANCE:
            del self._lines[same[0]]
        elif len(self._lines) >= self._max_processes:
            del self._lines[next(iter(self._lines))]

    def describe(self, model: str) -> list[dict[str, Any]]:
        return [
            {
                "model": name.model,
                "instance": name.instance,
                "pid": pid,
                "lines": [line._asdict() for line in lines],
            }
            for (name, pid), lines in self._lines.items()
            if model in ("", name.model)
        ]


def read_written(written: str, pid: int, now_s: float) -> KeptLine:
    """Read a line in any form of the log; any other line is a text of this process."""
    match = _HEAD.fullmatch(written)
    if match is not None:
        text = match["text"]
        with suppress(ValueError):  # the texts are not quoted
            text = json.loads(text)
        return KeptLine(
            0,
            now_s,
            match["letter"] or match["level"],
            int(match["pid"]),
            match["file"],
            int(match["line"]),
            "",
            "",
            str(text),
        )
    try:
        record = json.loads(_MARK.sub("", written, count=1))
        file, _, number = record["at"].rpartition(":")
        ids = [record["request_id"]] if "request_id" in record else record.get("request_ids", [])
        return KeptLine(
            0,
            now_s,
            record["level"],
            record["pid"],
            file,
            int(number),
            record.get("model", ""),
            "",
            name_requests(ids) + record["text"],
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return KeptLine(0, now_s, "I", pid, "output", 0, "", "", written)


def _concerns_model(line: KeptLine, model: str) -> bool:
    """True if the line is of the model, or of the server and names the model."""
    if not model or line.model == model:
        return True
    name = rf"(?<![\w.-]){re.escape(model)}(?![\w-])"
    return not line.model and re.search(name, line.text) is not None
