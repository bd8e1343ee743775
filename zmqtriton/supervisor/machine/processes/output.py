"""A stub's stdout and stderr, which become records of the server's log.

Each line carries the instance's name and its number, where other records have file and line. A
model that floods its output loses lines, which are counted; the last lines are kept to explain a
death.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from typing import Any

from zmqtriton.supervisor.machine.fitness import task_limits
from zmqtriton.supervisor.machine.log_ring import StubName
from zmqtriton.supervisor.machine.processes.crashes import FATAL_PREFIX, find_crash
from zmqtriton_floor import logs, wire
from zmqtriton_floor.logs import LEVEL_NUMBERS

_log = logging.getLogger("zmqtriton.output")
#: Of lines that processes send by themselves.
_said = logging.getLogger("zmqtriton.said")

_READ_BYTES = 65536
_MAX_LINE_BYTES = 16384
#: The number of lines per second that get through, after a first burst of as many.
_LINES_PER_S = 1000
_LAST_WORDS_BYTES = 4096
#: Of Python's report of a crash, as many lines from its first one are kept.
_CRASH_LINES = 200


class StubOutput:
    """The reading end of one stub's pipe."""

    def __init__(self, descriptor: int, stub: StubName, pid: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self.stub_name = stub
        self._pid = pid
        self._rest = b""
        self._number = 0
        self._recent_lines: deque[str] = deque()
        self._last_bytes = 0
        #: The last report of a crash; a deep stack is longer than what is kept of other output.
        self._crash_lines: list[str] = []
        self._tokens = float(_LINES_PER_S)
        self._refilled_at_s = time.monotonic()
        self.dropped_lines = 0

    def fileno(self) -> int:
        return self._descriptor

    def read(self) -> bool:
        """Read some bytes; False without any, or if there never will be."""
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _MAX_LINE_BYTES:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            self._log_line(line)
        return True

    def close(self, at_most: int = 64) -> None:
        """Read the remaining bytes.

        A child of the model may hold the other end open and go on for ever.
        """
        for _ in range(at_most):
            if not self.read():
                break
        if self._rest:
            self._log_line(self._rest)
        if self.dropped_lines:
            text = "%d lines of '%s' were dropped, there were too many"
            name = self.stub_name
            _log.warning(text, self.dropped_lines, name.instance, extra=_about(name))
        os.close(self._descriptor)

    @property
    def crash(self) -> str:
        """Return what Python wrote about its own crash."""
        return find_crash(self._crash_lines)

    @property
    def last_words(self) -> str:
        """Return what Python wrote about its own crash, or else the last line with any text.

        A line about a thread that cannot be had says more than the crash by which a library ends.
        """
        lines = [line.strip() for line in self._recent_lines if line.strip()]
        for line in filter(task_limits.is_shortage, lines):
            return f"{line}; {task_limits.explain()}"
        return self.crash or (lines[-1] if lines else "")

    def _log_line(self, data: bytes) -> None:
        # A progress bar overwrites its line; the log gets what a terminal would show in the end.
        shown = data.rstrip(b"\r").rpartition(b"\r")[2]
        line = shown[:_MAX_LINE_BYTES].decode("utf-8", "replace")
        self._number += 1
        self._recent_lines.append(line)
        if line.startswith(FATAL_PREFIX):
            self._crash_lines = [line]
        elif self._crash_lines and len(self._crash_lines) < _CRASH_LINES and line.strip():
            self._crash_lines.append(line.strip())
        self._last_bytes += len(line)
        while self._last_bytes > _LAST_WORDS_BYTES and len(self._recent_lines) > 1:
            self._last_bytes -= len(self._recent_lines.popleft())
        if self._take_token():
            origin = (self._pid, self.stub_name.instance, self._number)
            _log.info("%s", line, extra={"origin": origin, **_about(self.stub_name)})
        else:
            self.dropped_lines += 1

    def _take_token(self) -> bool:
        now_s = time.monotonic()
        gained = (now_s - self._refilled_at_s) * _LINES_PER_S
        self._tokens = min(2.0 * _LINES_PER_S, self._tokens + gained)
        self._refilled_at_s = now_s
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def _about(stub: StubName, traces: str = "") -> dict[str, Any]:
    """Return what records of a stub carry."""
    about = logs.subject(stub.model, stub.version, stub.instance, traces)
    return {"stub": stub, "traces": traces, "about": about}


def log_line(said: wire.LogLine, pid: int, output: StubOutput | None) -> None:
    """Log a line of a process; that of a stub under the model's name."""
    origin = (pid, said.file, said.line)
    level = LEVEL_NUMBERS.get(said.level, logging.INFO)
    about = {} if output is None else _about(output.stub_name, said.traces)
    _said.log(level, "%s", said.text, extra={"origin": origin, **about})
