"""Streams of text that never make their process wait for a reader.

What cannot be written is lost, whole lines at a time, and counted; once there is room again a line
says how many there were. `PipeStream` is for the end of a pipe that does not block, which the
supervisor gives each process of the server as stdout and stderr.
"""

from __future__ import annotations

import io
import os
import threading
from typing import Callable

#: Of a line that does not end, as much is one.
_LONGEST_LINE = 65536

UNREAD = "nobody has read them in time"


def describe_loss(lines: int, why: str = UNREAD) -> str:
    """Return the text of the line that stands for others."""
    return f"{lines} lines of the log are lost here: {why}"


def count_lines(data: bytes) -> int:
    """Return the number of lines, of which the last may have no end."""
    return data.count(b"\n") or 1


class LineStream(io.TextIOBase):
    """A stream of whole lines, which several threads may write to."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._unended = ""
        #: Of what is written, not of where it goes.
        self._lock = threading.RLock()
        #: All lines that were lost.
        self.lost = 0
        #: Makes the line that stands for lost ones of its text.
        self.form: Callable[[str], str] = str

    # mypy knows these as properties, io.TextIOBase has them as such
    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding, for libraries that look."""
        return "utf-8"

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        """Write the lines that have an end; the rest waits for its own, or for flush()."""
        with self._lock:
            whole, end, self._unended = (self._unended + text).rpartition("\n")
            if end or len(self._unended) > _LONGEST_LINE:
                if not end:
                    whole, self._unended = self._unended, ""
                self._put_text(whole + "\n")
        return len(text)

    def flush(self) -> None:
        with self._lock:
            if self._unended:
                text, self._unended = self._unended, ""
                self._put_text(text)

    def _put_text(self, text: str) -> None:
        self.put(text.encode("utf-8", "backslashreplace"))

    def put(self, data: bytes) -> None:
        """Take whole lines, and return soon; to be overridden."""
        raise NotImplementedError


class PipeStream(LineStream):
    """Writes to a pipe whose end does not block."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        #: What is left of a record that is longer than a page, and has gone in part.
        self._rest = b""
        self._untold = 0

    def put(self, data: bytes) -> None:
        """Write the lines if the pipe takes them now."""
        self._rest = self._rest[self._write(self._rest) :]
        text = data
        if self._untold:
            text = f"{self.form(describe_loss(self._untold))}\n".encode() + data
        sent = 0 if self._rest else self._write(text)
        if sent:
            self._untold, self._rest = 0, text[sent:]
        else:
            lines = count_lines(data)
            self._untold += lines
            self.lost += lines

    def _write(self, data: bytes) -> int:
        try:
            return os.write(self._descriptor, data) if data else 0
        except OSError:  # it is full, or nobody is left
            return 0
