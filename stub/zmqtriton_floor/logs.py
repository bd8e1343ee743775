"""One form of log line for all roles: Triton's default, ISO 8601, or JSON; and their streams.

    I1120 07:03:33.259775 4711 service.py:480] "loading: add_sub:1"

The text is quoted as JSON, so that no name or message can forge a line of its own; unless Triton's
variable TRITON_SERVER_ESCAPE_LOG_MESSAGES is 0 or FALSE. A traceback has further lines, which begin
with blanks.

No process waits for the reader of its lines: what cannot be written is lost, whole lines at a time,
and counted; once there is room again a line says how many there were.
"""

from __future__ import annotations

import io
import json
import logging
import math
import os
import re
import sys
import threading
import time
from types import MappingProxyType
from typing import IO, Any, Callable, Mapping, Sequence, Union

from zmqtriton_floor.process.named_tuples import NamedTuple

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
#: The levels in syslog's numbers, which journald reads at the beginning of a line.
_PRIORITIES = {"E": 3, "W": 4, "I": 6, "V": 7}

#: The line of Python that begins a traceback.
_TRACEBACK = "Traceback (most recent call last):\n"

#: The inode of the journal's stream: systemd's variable, and the supervisor's for its processes.
JOURNAL = "JOURNAL_STREAM"
_ESCAPES = "TRITON_SERVER_ESCAPE_LOG_MESSAGES"

#: The beginning of a line about a request that has an id, in Triton's words; or about several.
_REQUEST = re.compile(r"\[request id: (?!<id_unknown>)(.+?)\] ")
_REQUESTS = re.compile(r"\[request ids: (.+?)\] ")
#: Limits on the ids at the beginning of a line: the number of requests, and the characters of each.
_MAX_NAMED, _LONGEST_ID = 32, 128
#: Characters that a blank replaces in ids: clients choose the ids, which must not end the line.
_CONTROLS = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029), " ")

#: The limit for one place in the code: clients can cause some lines as often as they like.
MAX_LINES_A_SECOND = 100
_LEFT_OUT = "left out %d more lines like those before"
#: Maximum number of characters that wait for the end of their line; longer text is written as a
#: line.
_LONGEST_LINE = 65536

UNREAD = "nobody has read them in time"


def quote(text: str) -> str:
    """Return the text as one JSON token, with invisible characters escaped as well."""
    return _HIDDEN.sub(_escape, json.dumps(text, ensure_ascii=False))


#: Characters that control a terminal, separate lines, or change how their neighbours are shown: the
#: categories Cc, Cf, Zl and Zp of Unicode; and lone surrogates. JSON escapes those below a blank by
#: itself.
_HIDDEN = re.compile(
    "[\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0001\U000e0020-\U000e007f]"
)


#: The same of a line for people, with the control characters that JSON escapes but tabs.
_CONTROLS_SHOWN = re.compile(f"[\x00-\x08\x0a-\x1f]|{_HIDDEN.pattern}")


def escape(text: str) -> str:
    """Escape line ends and control characters in a text that clients or models may have chosen."""
    return _CONTROLS_SHOWN.sub(_escape, text)


def escape_lines(text: str) -> str:
    """Return a text with each of its lines escaped."""
    return "\n".join(map(escape, text.split("\n")))


def _escape(hidden: re.Match[str]) -> str:
    return json.dumps(hidden[0])[1:-1] if hidden[0] != "\x7f" else "\\u007f"


def timestamp(seconds: float) -> str:
    """Return a time of the wall clock as records have it."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1_000_000):06}Z"


def name_requests(ids: Sequence[str]) -> str:
    """Return the beginning of a line about requests with these ids; "" if none has one."""
    named = list(dict.fromkeys(own_id[:_LONGEST_ID] for own_id in ids if own_id))[:_MAX_NAMED]
    if not named:
        return ""
    named = [own_id.translate(_CONTROLS) for own_id in named]
    return f"[request id{'s' if len(named) > 1 else ''}: {', '.join(named)}] "


def line(
    level: str,
    origin: tuple[int, str, int],
    text: str,
    now_s: float,
    form: str = "default",
    about: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """Format a record without the newline; its origin is (pid, file, line).

    `about` has further fields for the form of JSON.
    """
    if form == "json":
        pid, file, number = origin
        record: dict[str, Any] = {
            "time": timestamp(now_s),
            "level": level,
            "pid": pid,
            "at": f"{file}:{number}",
            **about,
            "text": text,
        }
        if named := _REQUEST.match(text):
            record.update(request_id=named[1], text=text[named.end() :])
        elif named := _REQUESTS.match(text):
            record.update(request_ids=named[1].split(", "), text=text[named.end() :])
        return json.dumps(record)
    return _head(level, origin, now_s, form) + quote(text)


def _head(level: str, origin: tuple[int, str, int], now_s: float, form: str) -> str:
    """Return the head of a line. Verbose ones begin with I, as Triton has no letter for them."""
    pid, file, number = origin
    letter = "I" if level == "V" else level
    if form == "ISO8601":
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_s))
        return f"{stamp} {letter} {pid} {file}:{number}] "
    micros = int(now_s % 1 * 1_000_000)
    stamp = time.strftime("%m%d %H:%M:%S", time.localtime(now_s))
    return f"{letter}{stamp}.{micros:06d} {pid} {file}:{number}] "


def subject(model: str, version: int = 0, instance: str = "", traces: str = "") -> dict[str, Any]:
    """Return the fields of what a line is about, without those that are not known.

    `traces` are the spans of traced requests: traceparents with blanks between them.
    """
    fields: dict[str, Any] = {"model": model, "version": version, "instance": instance}
    named = traces.split()
    if len(named) == 1:
        fields.update(trace_id=named[0][3:35], span_id=named[0][36:52])
    elif named:
        fields["traceparents"] = named
    return {name: value for name, value in fields.items() if value}


class Formatter(logging.Formatter):
    """Formats a record of the logging module as a line of the log.

    `extra={"origin": (pid, file, line)}` replaces the place in our own code. `extra={"raw": text}`
    follows unquoted, as Triton prints tables and configurations. `extra={"about": fields}` has what
    the line is about, for the form of JSON.
    """

    def __init__(self, *, is_journal: bool = False, is_terminal: bool = False) -> None:
        super().__init__()
        #: A person reads the stream.
        self._is_terminal = is_terminal
        self.form = "default"
        self._is_escaped = os.environ.get(_ESCAPES, "").upper() not in ("0", "FALSE")
        #: journald reads the stream; it makes a record of each line.
        self._is_journal = is_journal

    def format_own(self, text: str) -> str:
        """Return a warning of this module's own."""
        here = __file__, sys._getframe().f_lineno
        return self.format(logging.LogRecord(__name__, logging.WARNING, *here, text, None, None))

    def format(self, record: logging.LogRecord) -> str:
        here = (os.getpid(), os.path.basename(record.pathname), record.lineno)
        origin: tuple[int, str, int] = getattr(record, "origin", here)
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        level = _LEVELS.get(record.levelno, "I")
        raw: str | None = getattr(record, "raw", None)
        if self.form == "json":
            about: Mapping[str, Any] = getattr(record, "about", {})
            whole = line(level, origin, text + (raw or ""), record.created, self.form, about)
        else:
            whole = _head(level, origin, record.created, self.form)
            if text or raw is None:
                whole += self._show(text) if self._is_escaped else text
            if raw is not None:
                whole += f"\n{raw}\n"
        if not self._is_journal:
            return whole
        mark = f"<{_PRIORITIES[level]}>"
        return "\n".join(mark + part for part in whole.splitlines() if part)

    def _show(self, text: str) -> str:
        """Return the text quoted; of a traceback, and on a terminal of any text, each line of it.

        No line but the first can look like the head of a record.
        """
        if "\n" not in text or not (self._is_terminal or _TRACEBACK in text):
            return quote(text)
        first, *others = text.rstrip("\n").split("\n")
        return "\n    ".join([quote(first), *map(escape, others)])


class LogOptions(NamedTuple):
    """Levels and form of the records that are written, as in wire.LogSettings."""

    form: str = "default"
    verbose: int = 0
    info: bool = True
    warning: bool = True
    error: bool = True

    def has(self, level: str) -> bool:
        """True if records of this level (I W E V) are written."""
        return bool(
            {"V": self.verbose, "I": self.info, "W": self.warning, "E": self.error}.get(level, True)
        )


def describe_loss(lines: int, why: str = UNREAD) -> str:
    """Return the text of the log line that reports lost lines."""
    return f"{lines} lines of the log are lost here: {why}"


def count_lines(data: bytes) -> int:
    """Return the number of line ends, or 1 for a text without any."""
    return data.count(b"\n") or 1


class LineStream(io.TextIOBase):
    """A stream of whole lines, which several threads may write to."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._unended = ""
        #: Lock for the text that waits for its end, and for put(). Other processes may write to the
        #: same descriptor.
        self._lock = threading.RLock()
        #: All lines that were lost.
        self.lost = 0
        #: Makes the line that stands for lost ones of its text.
        self.form: Callable[[str], str] = str

    # mypy knows these as properties, io.TextIOBase has them as such
    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding, for libraries that ask for it."""
        return "utf-8"

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        """Write complete lines; an incomplete last line waits for its end, or for flush()."""
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
        """Accept complete lines, and return soon; subclasses override this."""
        raise NotImplementedError


class PipeStream(LineStream):
    """Writes to a pipe whose end does not block."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        #: Bytes left of a record that is longer than a page, so that the pipe took only a part of
        #: it.
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


Output = Union[IO[str], LineStream]


class LimitedLog(logging.StreamHandler):  # type: ignore[type-arg]
    """Limits the lines per second of each place in our code, and then reports how many it left out.

    Clients can cause warnings, errors and records with `is_of_client`, so MAX_LINES_A_SECOND is the
    greatest limit of these. The output of models is not limited here.
    """

    def __init__(
        self,
        stream: Output | None = None,
        max_lines: int = MAX_LINES_A_SECOND,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(stream)
        self._clock = clock
        self._max_lines = max_lines
        #: Begin of the current second, and the number of lines since then, by place in the code.
        self._lines: dict[tuple[str, int], tuple[float, int]] = {}
        #: Last record that was left out, and the number of those, by place in the code.
        self._left_out: dict[tuple[str, int], tuple[logging.LogRecord, int]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        now_s = self._clock()
        if self._left_out:
            self._tell(now_s)
        if hasattr(record, "origin") or self._has_room(record, now_s):
            super().emit(record)

    def close(self) -> None:
        """Report left-out lines when the process ends."""
        self._tell(math.inf)
        super().close()

    def _has_room(self, record: logging.LogRecord, now_s: float) -> bool:
        place = (record.pathname, record.lineno)
        since_s, count = self._lines.get(place, (now_s, 0))
        if now_s - since_s >= 1:
            since_s, count = now_s, 0
        self._lines[place] = since_s, count + 1
        is_of_client = record.levelno >= logging.WARNING or getattr(record, "is_of_client", False)
        if count < (min(self._max_lines, MAX_LINES_A_SECOND) if is_of_client else self._max_lines):
            return True
        self._left_out[place] = record, self._left_out.get(place, (record, 0))[1] + 1
        return False

    def _tell(self, now_s: float) -> None:
        for place, (record, count) in list(self._left_out.items()):
            if now_s - self._lines[place][0] >= 1:
                del self._left_out[place]
                record.msg, record.args, record.exc_info = _LEFT_OUT, (count,), None
                super().emit(record)


def configure(
    options: LogOptions = LogOptions(),  # noqa: B008
    stream: Output | None = None,
    max_lines: int = MAX_LINES_A_SECOND,
) -> None:
    """Write the process's records to a stream, by default stderr, which the supervisor reads."""
    if stream is None:
        stream = take_over_output()
    formatter = Formatter(is_journal=is_journal(stream), is_terminal=stream.isatty())
    if isinstance(stream, LineStream):
        stream.form = formatter.format_own
    handler = LimitedLog(stream, max_lines)
    handler.setFormatter(formatter)
    logging.getLogger().handlers[:] = [handler]
    change(options)


def take_over_output() -> PipeStream:
    """Replace stdout and stderr by a stream that never waits for the supervisor; return it."""
    stream = sys.stderr
    if not isinstance(stream, PipeStream):
        sys.stdout = sys.stderr = stream = PipeStream(2)
    return stream


def is_journal(stream: Output) -> bool:
    """True if the stream is systemd's journal, which announces its inode."""
    named = os.environ.get(JOURNAL, "")
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return bool(named) and named == f"{status.st_dev}:{status.st_ino}"


def change(options: LogOptions) -> None:
    """Change the options for the same stream."""
    root = logging.getLogger()
    root.setLevel(logging.DEBUG if options.verbose else logging.INFO)
    for handler in root.handlers:
        if isinstance(handler.formatter, Formatter):
            handler.formatter.form = options.form
            handler.filters[:] = [lambda record: options.has(_LEVELS.get(record.levelno, "I"))]
