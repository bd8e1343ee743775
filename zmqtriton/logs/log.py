"""The supervisor's own log, and its way out: through a thread, since its reader may stop.

A full pipe, a halted terminal and a disk that hangs stop this thread alone. Lines wait for it, up
to a limit; more are lost, and counted. A writer waits a moment for its line: a client that sees an
effect usually finds its line in the log. If no thread can start, lines are written as long as that
takes no wait, and the next line tries to start it again. Set up once, before anything is logged.
"""

from __future__ import annotations

import atexit
import logging
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from zmqtriton.logs.guard import guarded
from zmqtriton.options import Options
from zmqtriton_floor import logs

#: Maximum number of the supervisor's similar lines in a second, as it reports on all models. For
#: failures and calls, which clients can cause at will, it has the limit of other processes.
_LINES_A_SECOND = 1000
_MAX_BYTES = 1 << 20
_WRITE_BYTES = 65536
#: Bytes that a pipe with room takes without a wait (PIPE_BUF).
_AT_ONCE_BYTES = 4096
#: The longest wait for a line to be written, and the share of time that goes into such waits.
_PATIENCE_S = 0.05
_LEAST_PATIENCE_S = 0.001
_WAITING_SHARE = 0.05
#: Maximum seconds without progress before the server ends without writing the rest of its log.
_END_WITHIN_S = 1.0
#: Interval of the reports that the log cannot be written.
_COMPLAIN_EVERY_S = 60.0


class _Entry(NamedTuple):
    data: bytes = b""
    #: The number of its lines, or of lost lines that it stands for.
    lines: int = 0
    stands_for: int = 0
    #: Run by the thread in place of a write.
    task: Callable[[], object] | None = None


class LogOutlet(logs.LineStream):
    """The log of all processes on its way to a descriptor, which may block."""

    def __init__(
        self,
        descriptor: int,
        complain: Callable[[str], object] = lambda text: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set up; `complain` gets the reason if nothing can be written, for another place.

        The thread begins with the first line.
        """
        super().__init__(descriptor)
        self._complain = complain
        self._clock = clock
        self._complained_s = clock() - _COMPLAIN_EVERY_S
        # may be taken by the thread that has it: any allocation may run a finalizer that prints
        self._state = threading.RLock()
        self._has_work = threading.Condition(self._state)
        self._has_written = threading.Condition(self._state)
        self._thread: threading.Thread | None = None
        self._lacks_thread = False
        self._queue: deque[_Entry] = deque()
        self._bytes = 0
        self._put_count = self._done_count = 0
        #: Lost lines that no line tells of yet, and why.
        self._untold = 0
        self._why = logs.UNREAD
        #: Time since which the thread has been writing the same lines; None if it has none.
        self._began_s: float | None = None
        self._patience_s = _PATIENCE_S
        self._at_s = clock()

    def loss(self) -> dict[str, Any]:
        """Return the number of lost lines, and the seconds of the write under way."""
        began_s = self._began_s
        unread_s = 0.0 if began_s is None else max(0.0, self._clock() - began_s)
        return {"lost_lines": self.lost, "unread_s": round(unread_s, 3)}

    def put(self, data: bytes) -> None:
        """Write whole lines, and wait a moment until they are written."""
        with self._state:
            if self._take(data):
                self._wait_a_moment()

    def relay(self, data: bytes) -> None:
        """Write whole lines of another process, without a wait."""
        with self._state:
            self._take(data)

    def run_between(self, task: Callable[[], object]) -> None:
        """Have the thread run a task between two lines, such as to open another file."""
        with self._state:
            self._append(_Entry(task=task))

    def finish(self) -> None:
        """Wait until all lines are written, or the reader has stopped."""
        with self._state:
            if self._thread is None:
                self._write_at_once()
            while self._done_count < self._put_count:
                before = self._done_count
                self._has_written.wait(_END_WITHIN_S)
                if self._done_count == before:
                    return

    # ---------------------------------------------------------- whoever writes

    def _take(self, data: bytes) -> bool:
        if self._bytes and self._bytes + len(data) > _MAX_BYTES:
            self._lose(logs.count_lines(data), logs.UNREAD)
            return False
        self._tell_loss()
        self._append(_Entry(data, logs.count_lines(data)))
        return True

    def _append(self, entry: _Entry) -> None:
        self._queue.append(entry)
        self._put_count += 1
        self._bytes += len(entry.data)
        if self._thread is None:
            self._begin()
        self._has_work.notify()

    def _begin(self) -> None:
        thread = threading.Thread(target=self._run, name="log", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if not self._lacks_thread:
                self._lacks_thread = True
                text = f"the log may lose lines where its reader is slow: {error}"
                self._append(_Entry(f"{self.form(text)}\n".encode(), 1))
            self._write_at_once()
        else:
            self._thread = thread

    def _wait_a_moment(self) -> None:
        """Wait a moment until the queue is written; such waits take a limited share of the time."""
        number, began_s = self._put_count, self._clock()
        self._patience_s = min(
            _PATIENCE_S, self._patience_s + (began_s - self._at_s) * _WAITING_SHARE
        )
        self._at_s = began_s
        if self._thread is not None and self._patience_s >= _LEAST_PATIENCE_S:
            until_s = began_s + self._patience_s
            while self._done_count < number and (left_s := until_s - self._clock()) > 0:
                self._has_written.wait(left_s)
            self._patience_s -= self._clock() - began_s

    def _lose(self, lines: int, why: str, stood_for: int = 0) -> None:
        self.lost += lines
        self._untold += lines + stood_for
        self._why = why

    def _tell_loss(self) -> None:
        if self._untold:
            text = logs.describe_loss(self._untold, self._why)
            entry = _Entry(f"{self.form(text)}\n".encode(), stands_for=self._untold)
            self._untold = 0
            self._append(entry)

    def _write_at_once(self) -> None:
        """Write in place of the thread, as much as takes no wait."""
        if self._began_s is not None:
            return  # a finalizer prints in the midst of this
        while self._queue and (self._queue[0].task is not None or self._has_room()):
            self._began_s = self._clock()
            entry = self._queue.popleft()
            first, rest = entry.data[:_AT_ONCE_BYTES], entry.data[_AT_ONCE_BYTES:]
            if entry.task is not None:
                entry.task()
            _, error = self._write(first)
            if rest and error is None:
                self._queue.appendleft(entry._replace(data=rest))
                self._bytes -= len(first)
                self._began_s = None
            else:
                self._take_note([entry], 0 if error else len(first), error)

    def _has_room(self, within_ms: int | None = 0) -> bool:
        """Return whether bytes can be written within this time; None waits until then."""
        poller = select.poll()
        poller.register(self._descriptor, select.POLLOUT)
        return bool(poller.poll(within_ms))

    # -------------------------------------------------------------- the thread

    def _run(self) -> None:
        while True:
            entries = self._next_entries()
            if entries[0].task is not None:
                entries[0].task()
                self._take_note(entries, 0, None)
            else:
                self._take_note(entries, *self._write(b"".join(entry.data for entry in entries)))

    def _next_entries(self) -> list[_Entry]:
        """Wait for lines and return some, or one task."""
        with self._state:
            while not self._queue:
                self._has_work.wait()
            entries = [self._queue.popleft()]
            size = len(entries[0].data)
            while (
                self._queue
                and size < _WRITE_BYTES
                and entries[0].task is None
                and self._queue[0].task is None
            ):
                entries.append(self._queue.popleft())
                size += len(entries[-1].data)
            self._began_s = self._clock()
        return entries

    def _write(self, data: bytes) -> tuple[int, OSError | None]:
        """Write all bytes; return the number written, and the error that stopped it or None."""
        sent = 0
        while sent < len(data):
            try:
                sent += os.write(self._descriptor, data[sent : sent + _WRITE_BYTES])
            except BlockingIOError:  # whoever has started the server has it so
                self._has_room(None)
            except OSError as error:
                return sent, error
        return sent, None

    def _take_note(self, entries: list[_Entry], written: int, error: OSError | None) -> None:
        with self._state:
            self._began_s = None
            self._done_count += len(entries)
            for entry in entries:
                self._bytes -= len(entry.data)
                written -= len(entry.data)
                if error is not None and written < 0:
                    self._lose(entry.lines, str(error), entry.stands_for)
            if error is None and not self._queue:
                self._tell_loss()
            self._has_written.notify_all()
        now_s = self._clock()
        if error is not None and now_s >= self._complained_s + _COMPLAIN_EVERY_S:
            self._complained_s = now_s
            self._complain(f"cannot write the log: {error}; lines lost so far: {self.lost}\n")


def log_options(options: Options) -> logs.LogOptions:
    """Return which records are written, and how."""
    return logs.LogOptions(
        options.log_format,
        options.log_verbose,
        options.log_info,
        options.log_warning,
        options.log_error,
    )


def take_over_output() -> LogOutlet:
    """Pass stdout and stderr on through threads, since readers may stop; return stderr's outlet.

    stdout and stderr have one thread if they are the same file, else one each.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    to_stderr = _outlet(2)
    to_stdout = to_stderr if os.path.sameopenfile(1, 2) else _outlet(1)
    sys.stdout, sys.stderr = to_stdout, to_stderr
    return to_stderr


def _outlet(descriptor: int, complain: Callable[[str], object] = lambda text: None) -> LogOutlet:
    outlet = LogOutlet(descriptor, complain)
    atexit.register(_finish, outlet)
    return outlet


def _finish(outlet: LogOutlet) -> None:
    logging.shutdown()  # its handlers may have something to write
    outlet.finish()


class ServerLog:
    """The log of the server's processes: where it goes."""

    def __init__(self, options: Options, to_stderr: LogOutlet) -> None:
        """Open the log. Raises OSError if there is a log file that cannot be opened."""
        self._path = options.log_file
        #: Outlet for parts that need the terminal's width, or the number of lost lines.
        self.outlet = to_stderr
        if self._path:
            try:
                descriptor = _open_log(self._path)
            except OSError as error:
                raise OSError(
                    f"cannot open the log file '{self._path}', choose another --log-file: "
                    f"{error.strerror}"
                ) from error
            self.outlet = _outlet(descriptor, to_stderr.write)
        logs.configure(log_options(options), self.outlet, _LINES_A_SECOND)

    def reopen(self) -> None:
        """Open the log file anew, if there is one: it may have been renamed."""
        if self._path:
            self.outlet.run_between(self._reopen)

    def _reopen(self) -> None:
        with guarded("to open the log file anew"):
            # it was there at the start
            os.makedirs(os.path.dirname(os.path.abspath(self._path)), 0o750, exist_ok=True)
            opened = _open_log(self._path)
            os.dup2(opened, self.outlet.fileno(), inheritable=False)
            os.close(opened)


def _open_log(path: str) -> int:
    """Open a log file; other users cannot read a new one, whatever the umask."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
