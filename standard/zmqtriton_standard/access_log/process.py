"""The process of the access log: takes lines from all frontends and writes them to one file.

Run by the server as `python -m zmqtriton_standard.access_log.process`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import queue
import socket
import threading
import time
from contextlib import suppress

from zmqtriton.sdk.frontend import Gateway
from zmqtriton.sdk.lines.receiver import Receiver
from zmqtriton.sdk.process import prctl, run_local
from zmqtriton_standard.access_log.options import QUESTION, SERVICE
from zmqtriton_standard.metrics.model_metrics import family, text_of

_log = logging.getLogger(__name__)

#: Maximum bytes of lines that wait for the disk; more are dropped.
MAX_BYTES = 32 << 20
_LOOK_EVERY_S = 0.5
_LOG_EVERY_S = 60.0
#: Key in a frontend's line: the number of lines that it dropped before this one.
_DROPPED = b'"dropped":'
_LINES = "zmqtriton_access_log_lines_dropped_total"


class LogFile:
    """The file, written by a thread: a slow disk does not hold up the process.

    If the file was moved away, as logrotate does, a new one is made within a second.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = -1
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._waiting = 0
        self._lock = threading.Lock()
        #: Lines that were dropped.
        self.dropped = 0
        self._logged_s = float("-inf")
        # a disk that hangs must not keep the process
        self._thread = threading.Thread(target=self._run, name="access-log", daemon=True)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def write(self, lines: bytes) -> None:
        """Write whole lines; drop them if the disk does not keep up."""
        with self._lock:
            has_room = self._waiting + len(lines) <= MAX_BYTES
            self._waiting += len(lines) * has_room
        if has_room:
            self._queue.put(lines)
        else:
            self._drop(lines, "the disk does not keep up")

    def end(self) -> None:
        """End once all lines so far are written."""
        self._queue.put(None)

    def _run(self) -> None:
        looked_s = float("-inf")
        while True:
            lines = self._queue.get()
            if lines is None:
                break
            try:
                if time.monotonic() - looked_s >= _LOOK_EVERY_S:
                    self._open()
                    looked_s = time.monotonic()
                self._append(lines)
            except OSError as error:
                self._drop(lines, str(error))
            with self._lock:
                self._waiting -= len(lines)
        if self._file >= 0:
            os.close(self._file)

    def _open(self) -> None:
        """Open the file if it is not the one that is open."""
        if self._file >= 0:
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(self._file), os.stat(self._path)):
                    return
            os.close(self._file)
            self._file = -1
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        # it was there at the start; a cleaner, or a mount that is gone, has taken it
        os.makedirs(os.path.dirname(self._path), 0o750, exist_ok=True)
        self._file = os.open(self._path, flags, 0o640)

    def _append(self, lines: bytes) -> None:
        size, view = os.fstat(self._file).st_size, memoryview(lines)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError:
            with suppress(OSError):  # it is no plain file
                os.ftruncate(self._file, size)
            raise

    def _drop(self, lines: bytes, reason: str) -> None:
        self.dropped += lines.count(b"\n")
        now_s = time.monotonic()
        if now_s - self._logged_s >= _LOG_EVERY_S:
            self._logged_s = now_s
            _log.warning("lines of the access log are dropped, %d so far: %s", self.dropped, reason)


class AccessLogService(Receiver):
    """The process of the access log, as frontends see it."""

    def __init__(self, gateway: Gateway, listener: socket.socket) -> None:
        """Set up with a bound socket."""
        self.file = LogFile(os.path.abspath(gateway.settings.option(SERVICE)))
        #: Lines that frontends could not send.
        self._unsent = 0
        super().__init__("AccessLog", listener, self.file, lambda: _Connection(self))

    def take(self, lines: bytes) -> None:
        """Take whole lines of a frontend, with the number of lines that it dropped before."""
        if _DROPPED in lines:  # a client's text has its quotes escaped
            marked = (line for line in lines.splitlines() if _DROPPED in line)
            self._unsent += sum(json.loads(line).get("dropped", 0) for line in marked)
        self.file.write(lines)

    def figures(self) -> str:
        """Return the text for the page of metrics."""
        text = "Lines of the access log that were not written"
        return text_of(family(_LINES, text, "counter", [({}, self._unsent + self.file.dropped)]))


class _Connection(asyncio.Protocol):
    """The connection of a frontend."""

    def __init__(self, service: AccessLogService) -> None:
        self._service = service
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._service.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._service.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        if data == QUESTION:  # of the page of metrics, which sends nothing else
            self._transport.write(self._service.figures().encode())
            self._transport.close()
            return
        lines, newline, self._rest = (self._rest + data).rpartition(b"\n")
        if newline:
            self._service.take(lines + newline)


def main() -> int:
    return run_local("zmqtriton-access-log", AccessLogService)


if __name__ == "__main__":
    prctl.run_program(main)
