"""The server of one node: a thread starts it, waits for its end, and starts it again.

The server holds the end of a pipe whose other end is here. It ends with this process, however that
ends, so nobody is left behind.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from zmqtriton import runtime_places
from zmqtriton.supervisor import Backoff
from zmqtriton_addons.fleet.announcing.announcement import STARTING
from zmqtriton_addons.fleet.engine import Report

#: Beyond what a server takes by itself: --exit-drain-secs and --exit-timeout-secs.
_STOP_WITHIN_S = 60.0


class NodeServer:
    def __init__(self, name: str, options: Sequence[str]) -> None:
        # an --id among the options comes later, and wins
        self._options = [f"--id={name}", *options]
        #: In the runtime directory, which the server makes, and which goes with it.
        self._announced = Path()
        self._backoff = Backoff()
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = -1
        self._problem = ""
        self._has_worked = False
        self._thread = threading.Thread(target=self._run, daemon=True, name="node-server")
        self._thread.start()

    def look(self) -> Report:
        """Return what the server that runs now has announced."""
        process = self._process
        if process is None:
            return Report(problem=self._problem)
        try:
            text, written_s = self._announced.read_text("utf-8"), self._announced.stat().st_mtime
        except FileNotFoundError:
            return Report(problem=self._problem)
        announcement: dict[str, Any] = json.loads(text)
        self._has_worked = self._has_worked or announcement["state"] != STARTING
        return Report(announcement, max(0.0, time.time() - written_s))

    def stop(self, within_s: float = _STOP_WITHIN_S) -> None:
        """End the server in order, and wait until it has ended."""
        with self._lock:
            self._is_over.set()
            self._leave()
        self._thread.join(within_s)
        process = self._process
        if process is not None and self._thread.is_alive():
            process.kill()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._is_over.is_set():
                    return
                try:
                    self._process = self._start()
                except OSError as error:
                    self._problem = f"the server cannot be started: {error}"
            if self._process is not None:
                status = self._process.wait()
                self._problem = f"the server {_describe_end(status)}"
                self._process = None
            with self._lock:
                self._leave()
            self._backoff.record_death(time.monotonic(), had_worked=self._has_worked)
            self._is_over.wait(self._backoff.pause_s)

    def _start(self) -> subprocess.Popen[bytes]:
        self._has_worked = False
        directory = runtime_places.preferred() / f"zmqtriton-{secrets.token_hex(8)}"
        self._announced = directory / "announcement.json"
        theirs, self._owner = os.pipe()
        command = [sys.executable, "-m", "zmqtriton", *self._options]
        command += [
            f"--runtime-directory={directory}",
            f"--announce={self._announced}",
            f"--owner-descriptor={theirs}",
        ]
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs,),
                # Ctrl-C is this process's to answer
                start_new_session=True,
            )
        finally:
            os.close(theirs)

    def _leave(self) -> None:
        """Let go of the pipe: a server that still runs stops in order."""
        if self._owner >= 0:
            os.close(self._owner)
            self._owner = -1


def _describe_end(status: int) -> str:
    if status >= 0:
        return f"ended with {status}; its log says why"
    name = str(-status)
    with suppress(ValueError):
        name = signal.Signals(-status).name
    return f"was killed by {name}"
