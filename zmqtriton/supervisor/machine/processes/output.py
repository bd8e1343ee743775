"""The output of children: a stub's becomes records of the server's log, others' are its lines.

Each line of a stub carries the instance's name and its number, where other records have file and
line. A model that floods its output loses lines, which are counted; the last lines, with the place
of a crash, are kept to explain a death.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import selectors
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from zmqtriton.addons import SHELVES
from zmqtriton.host import fitness
from zmqtriton.logs.guard import guarded
from zmqtriton.logs.log import LogOutlet
from zmqtriton.logs.log_ring import LogRing, StubName
from zmqtriton.supervisor.machine.processes.output_reader import OutputReader, Pipe
from zmqtriton_floor import logs, wire
from zmqtriton_floor.logs import LEVEL_NUMBERS, count_lines

_log = logging.getLogger("zmqtriton.output")
#: Logger of lines that processes send as messages.
_said = logging.getLogger("zmqtriton.said")

_MAX_LINE_BYTES = 16384
#: Room in a pipe for lines that a process of the server prints before they are read.
_PIPE_BYTES = 1 << 20
#: The number of lines per second that get through, after a first burst of as many.
_LINES_PER_S = 1000
#: The loop has other things to do, too.
_TURN_S = 0.02
#: Maximum bytes of a stub's lines that wait for the loop; beyond that the oldest are dropped.
_MAX_WAITING_BYTES = 1 << 20
_LAST_WORDS_BYTES = 4096
#: Maximum number of lines that are kept of Python's report of a crash.
_CRASH_LINES = 200
#: The line with which Python begins its report of a crash.
FATAL_PREFIX = "Fatal Python error: "
_FATAL = FATAL_PREFIX.encode()
_STACK = re.compile(r"(Current thread|Stack) .*\(most recent call first\):")
_FRAME = re.compile(r'File "(.+)", line (\d+) in (.+)')
#: Number of outer frames that are shown before the frame that crashed.
_MAX_OUTER_FRAMES = 2
#: Frames below one of these run every model, or are those of our backends, and are left out.
_OWN_PATHS = ("/zmqtriton_stub/", *(f"/{shelf}/" for shelf in SHELVES))
#: Lines of stacks as Python writes them, and behind them the names of threads that are instances.
_STACK_LINE = re.compile(
    rb"(Current thread|Thread|Stack) .*most recent call first|"
    rb'  File ".*", line (\d+|\?\?\?) in |  \.\.\.$|  <|Thread 0x\w+ is instance '
)
_MOST_STACK_LINES = 20_000
#: Frames of the import system say nothing about the model.
_IMPORT = ("<frozen importlib", "/importlib/__init__.py")


def unblock(writing: int) -> dict[str, str | None]:
    """Prepare the output pipe of a server process, which must not wait for its reader.

    Returns variables for the process: whether the pipe leads to systemd's journal, as in `logs`.
    """
    os.set_blocking(writing, False)
    with suppress(OSError):  # a user who is not root may have so many pages of pipes, no more
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    status = os.fstat(writing)
    return {
        logs.JOURNAL: f"{status.st_dev}:{status.st_ino}" if logs.is_journal(sys.stderr) else None
    }


class Lines:
    """Cuts the bytes of a pipe into whole lines."""

    def __init__(self) -> None:
        self._rest = b""

    def cut(self, data: bytes) -> bytes:
        """Return the complete lines; if the pipe has ended (b""), also the incomplete last one."""
        whole, end, self._rest = (self._rest + data).rpartition(b"\n")
        if self._rest and (not data or len(self._rest) > _MAX_LINE_BYTES):
            whole, end, self._rest = whole + end + self._rest, b"\n", b""
        return whole + end


class Outputs:
    """The output of all children, which a thread reads."""

    def __init__(self, selector: selectors.BaseSelector, outlet: LogOutlet, ring: LogRing) -> None:
        self._reader = OutputReader(selector)
        self._outlet, self._ring = outlet, ring
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector = selector
        selector.register(self._event, selectors.EVENT_READ, self._log_waiting)
        #: Outputs that have lines for the loop.
        self._waiting: deque[StubOutput] = deque()

    def follow_process(self, descriptor: int, pid: int) -> Callable[[], None]:
        """Pass on the output of a server process; return a function that reads the rest.

        The pipe is read until its end, since forks of the process may write to it.
        """
        lines = Lines()

        def take(data: bytes) -> None:
            if whole := lines.cut(data):
                self._outlet.relay(whole)
                self._ring.keep_written(whole, pid)

        pipe = self._reader.watch(Pipe(descriptor, take))
        return lambda: self._reader.read_now(pipe)

    def follow_stub(self, descriptor: int, stub: StubName, pid: int) -> StubOutput:
        """Log what a stub prints, until the output is closed."""
        output = StubOutput(stub, pid, self._note_waiting)
        pipe = self._reader.watch(Pipe(descriptor, output.take))
        output.read = lambda: self._reader.read_now(pipe, 1)
        output.leave = lambda: self._reader.leave(pipe)
        return output

    def close(self) -> None:
        self._reader.close()
        self._selector.unregister(self._event)
        os.close(self._event)

    def _note_waiting(self, output: StubOutput) -> None:
        self._waiting.append(output)
        os.eventfd_write(self._event, 1)

    def _log_waiting(self) -> None:
        """Log lines of the stubs in turn, for a moment."""
        os.eventfd_read(self._event)
        until_s = time.monotonic() + _TURN_S
        while self._waiting and time.monotonic() < until_s:
            output = self._waiting.popleft()
            with guarded(f"what '{output.stub_name.instance}' has printed"):
                if output.log_some():
                    self._waiting.append(output)
        if self._waiting:
            os.eventfd_write(self._event, 1)


class StackLines:
    """The lines of stacks in one output, from a request for stacks on."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def divert(self, whole: bytes) -> bytes:
        """Keep the lines that belong to stacks, and return the others."""
        others: list[bytes] = []
        is_within = False
        for line in whole.splitlines(keepends=True):
            is_within = bool(_STACK_LINE.match(line)) or (is_within and not line.strip())
            if not is_within:
                others.append(line)
            elif line.strip() and len(self.lines) < _MOST_STACK_LINES:
                self.lines.append(line.rstrip())
        return b"".join(others)


class StubOutput:
    """The output of one stub: data from its pipe wait for the loop, which logs them."""

    def __init__(self, stub: StubName, pid: int, on_waiting: Callable[[StubOutput], None]) -> None:
        """Set up; `on_waiting` is called in the thread when the first lines wait."""
        self.stub_name = stub
        self._pid = pid
        self._on_waiting = on_waiting
        #: Reads what the pipe holds; reads its last bytes and closes it.
        self.read: Callable[[], None] = lambda: None
        self.leave: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._lines = Lines()
        #: Takes the lines of stacks that the stub was asked for; None if it was not.
        self._stacks: StackLines | None = None
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        #: Lines that were dropped while they waited.
        self._skipped = 0
        self._number = 0
        self._recent_lines: deque[str] = deque()
        self._last_bytes = 0
        #: The last report of a crash; a deep stack is longer than what is kept of other output.
        self._crash_lines: list[str] = []
        self._tokens = float(_LINES_PER_S)
        self._refilled_at_s = time.monotonic()
        self.dropped_lines = 0

    def take(self, data: bytes) -> None:
        """Let lines wait for the loop; called in the reading thread."""
        whole = self._lines.cut(data)
        if whole and self._stacks is not None:
            whole = self._stacks.divert(whole)
        if not whole:
            return
        with self._lock:
            is_first = not self._waiting
            self._waiting.append(whole)
            self._waiting_bytes += len(whole)
            while self._waiting_bytes > _MAX_WAITING_BYTES:
                dropped = self._waiting.popleft()
                self._waiting_bytes -= len(dropped)
                self._skipped += count_lines(dropped)
        if is_first:
            self._on_waiting(self)

    def take_stacks(self) -> StackLines:
        """Keep lines of stacks from now on, instead of logging them, and return the collection."""
        self._stacks = StackLines()
        return self._stacks

    def leave_stacks(self, stacks: StackLines) -> None:
        """Log lines of stacks again, unless stacks have been requested again."""
        if self._stacks is stacks:
            self._stacks = None

    def log_some(self) -> bool:
        """Log the lines of one read; return whether more wait."""
        with self._lock:
            data = self._waiting.popleft() if self._waiting else b""
            self._waiting_bytes -= len(data)
            skipped, self._skipped = self._skipped, 0
        self._drop(skipped)
        lines = data.split(b"\n")[:-1]
        room = self._take_tokens(len(lines))
        for line in lines[:room]:
            self._log_line(line)
        self._drop(len(lines) - room)
        for line in self._last_of(lines[room:]):
            self._remember(_shown(line))
        return bool(self._waiting)

    def catch_up(self) -> None:
        """Log the lines of the pipe, which precede a line that has come another way."""
        self.read()
        while self.log_some():
            pass

    def _drop(self, lines: int) -> None:
        self._number += lines
        self.dropped_lines += lines

    def close(self) -> None:
        """Log the remaining lines.

        A child of the model may hold the other end open and run for ever.
        """
        self.leave()
        self.take(b"")
        self.catch_up()
        if self.dropped_lines:
            _log.warning(
                "%d lines of '%s' were dropped, there were too many",
                self.dropped_lines,
                self.stub_name.instance,
                extra=_about(self.stub_name),
            )

    @property
    def crash(self) -> str:
        """Return Python's report of its own crash."""
        return find_crash(self._crash_lines)

    @property
    def last_words(self) -> str:
        """Return Python's report of its own crash, or else the last line with any text.

        A line about a thread that could not start explains more than the crash of a library after
        it.
        """
        lines = [line.strip() for line in self._recent_lines if line.strip()]
        for line in filter(fitness.is_task_shortage, lines):
            return f"{line}; {fitness.explain_task_limits()}"
        return self.crash or (lines[-1] if lines else "")

    def _log_line(self, data: bytes) -> None:
        line = _shown(data)
        self._number += 1
        self._remember(line)
        origin = (self._pid, self.stub_name.instance, self._number)
        _log.info("%s", line, extra={"origin": origin, **_about(self.stub_name)})

    def _remember(self, line: str) -> None:
        """Keep a line that may explain a death."""
        self._recent_lines.append(line)
        if line.startswith(FATAL_PREFIX):
            self._crash_lines = [line]
        elif self._is_in_crash and line.strip():
            self._crash_lines.append(line.strip())
        self._last_bytes += len(line)
        while self._last_bytes > _LAST_WORDS_BYTES and len(self._recent_lines) > 1:
            self._last_bytes -= len(self._recent_lines.popleft())

    @property
    def _is_in_crash(self) -> bool:
        return 0 < len(self._crash_lines) < _CRASH_LINES

    def _last_of(self, lines: list[bytes]) -> list[bytes]:
        """Return the dropped lines to remember; a flood can have many."""
        if self._is_in_crash or any(line.startswith(_FATAL) for line in lines):
            return lines
        size, first = 0, len(lines)
        while first and size <= _LAST_WORDS_BYTES:
            first -= 1
            size += len(lines[first]) + 1
        return lines[first:]

    def _take_tokens(self, number: int) -> int:
        """Return the number of these lines that may be logged."""
        now_s = time.monotonic()
        self._tokens = min(
            2.0 * _LINES_PER_S, self._tokens + (now_s - self._refilled_at_s) * _LINES_PER_S
        )
        self._refilled_at_s = now_s
        allowed = min(number, int(self._tokens))
        self._tokens -= allowed
        return allowed


def _shown(data: bytes) -> str:
    """Return a line as a terminal finally shows it, after a progress bar has overwritten it."""
    return data.rstrip(b"\r").rpartition(b"\r")[2][:_MAX_LINE_BYTES].decode("utf-8", "replace")


def _about(stub: StubName, traces: str = "") -> dict[str, Any]:
    """Return the fields of a stub's log records."""
    return {
        "stub": stub,
        "traces": traces,
        "about": logs.subject(stub.model, stub.version, stub.instance, traces),
    }


def log_line(said: wire.LogLine, pid: int, output: StubOutput | None) -> None:
    """Log a line of a process; a stub's line under the model's name."""
    origin = (pid, said.file, said.line)
    level = LEVEL_NUMBERS.get(said.level, logging.INFO)
    about: dict[str, Any] = {}
    if output is not None:
        output.catch_up()
        about = _about(output.stub_name, said.traces)
    _said.log(level, "%s", said.text, extra={"origin": origin, **about})


def find_crash(lines: Sequence[str]) -> str:
    """Return the last crash in these lines and its place in the model; or ""."""
    fatal = [n for n, line in enumerate(lines) if line.startswith(FATAL_PREFIX)]
    if not fatal:
        return ""
    report = lines[fatal[-1] :]
    stacks = [n for n, line in enumerate(report) if _STACK.match(line)]
    frames: list[str] = []
    for line in report[stacks[0] + 1 :] if stacks else ():
        frame = _FRAME.match(line)
        is_ours = frame is not None and any(path in frame[1] for path in _OWN_PATHS)
        if frame is None or (is_ours and frames):
            break
        # A crash within pb_utils is shown where the model has called it.
        if not (is_ours or frame[1].startswith(_IMPORT[0]) or frame[1].endswith(_IMPORT[1])):
            frames.append("{}({}): {}".format(*frame.groups()))
    told_of = report[0].removeprefix(FATAL_PREFIX)
    if not frames:
        return told_of
    # the model's innermost line stands above those of libraries
    own = next((one for one in frames if one.startswith(os.path.dirname(frames[-1]))), frames[0])
    shown = dict.fromkeys([frames[0], own, *frames[1:][-_MAX_OUTER_FRAMES:]])
    return "\n".join([f"{told_of}\n\nAt:", *(f"  {frame}" for frame in shown)])
