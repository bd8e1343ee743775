"""One form of log line for all roles: Triton's default, ISO 8601, or JSON.

    I1120 07:03:33.259775 4711 service.py:480] "loading: add_sub:1"

The text is quoted as JSON, so that no name or message can forge a line of its own.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from typing import IO

_LEVELS = {
    logging.DEBUG: "V",
    logging.INFO: "I",
    logging.WARNING: "W",
    logging.ERROR: "E",
    logging.CRITICAL: "E",
}
LEVEL_NUMBERS = {
    "V": logging.DEBUG,
    "I": logging.INFO,
    "W": logging.WARNING,
    "E": logging.ERROR,
}
FORMS = ("default", "ISO8601", "json")


def quote(text: str) -> str:
    """The text as one token: JSON, with what would move a terminal escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f").translate(_SEPARATORS)


_SEPARATORS = {c: f"\\u{c:04x}" for c in (0x85, 0x2028, 0x2029, *range(0x80, 0xA0))}


def line(
    level: str, origin: tuple[int, str, int], text: str, now_s: float, form: str = "default"
) -> str:
    """One record, without the newline; its origin is (pid, file, line)."""
    pid, file, number = origin
    moment = time.localtime(now_s)
    if form == "json":
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_s))
        record = {"time": stamp, "level": level, "pid": pid, "at": f"{file}:{number}", "text": text}
        return json.dumps(record)
    if form == "ISO8601":
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_s))
        return f"{stamp} {level} {pid} {file}:{number}] {quote(text)}"
    micros = int(now_s % 1 * 1_000_000)
    stamp = time.strftime("%m%d %H:%M:%S", moment)
    return f"{level}{stamp}.{micros:06d} {pid} {file}:{number}] {quote(text)}"


class Formatter(logging.Formatter):
    """A stdlib record as such a line. Where `extra={"origin": (pid, file, line)}` is given, those
    are printed instead of the place in our own code. `extra={"raw": text}` is appended unquoted."""

    def __init__(self, form: str = "default") -> None:
        super().__init__()
        self.form = form

    def format(self, record: logging.LogRecord) -> str:
        here = (os.getpid(), os.path.basename(record.pathname), record.lineno)
        origin: tuple[int, str, int] = getattr(record, "origin", here)
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        level = _LEVELS.get(record.levelno, "I")
        whole = line(level, origin, text, record.created, self.form)
        raw: str | None = getattr(record, "raw", None)
        return whole if raw is None else f"{whole}\n{raw}"


def configure(form: str = "default", verbose: int = 0, stream: IO[str] | None = None) -> None:
    """Sends all of this process's records to the stream (stderr), VERBOSE ones if asked for."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(Formatter(form))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if verbose else logging.INFO)
