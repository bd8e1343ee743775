"""A script on a thread of its own, and a free port."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any

DEFAULT_LOG_FORMAT = (
    "%(asctime)s - %(levelname)8s - %(process)8d - %(threadName)s - %(name)s: %(message)s"
)
_END_S = 60.0


class ScriptThread(threading.Thread):
    """A thread that runs a command and keeps its output."""

    def __init__(
        self,
        cmd: Sequence[str],
        workdir: str | os.PathLike[str] | None = None,
        name: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name=name, daemon=True, **options)
        self.cmd = cmd
        self.workdir = workdir
        self.returncode: int | None = None
        self._process: subprocess.Popen[str] | None = None
        self._lines: list[str] = []
        self._has_begun = threading.Event()
        self._logger = logging.getLogger(self.name)

    @property
    def active(self) -> bool:
        """True while the command runs."""
        return self._process is not None

    @property
    def process(self) -> subprocess.Popen[str] | None:
        """The command's process while it runs."""
        return self._process

    @property
    def output(self) -> str:
        """The lines that the command has printed, with its errors."""
        return "\n".join(self._lines)

    def start(self, flag: threading.Event | None = None) -> None:
        """Start the command; the flag is set once it runs, or has failed to start."""
        self._has_begun = flag or self._has_begun
        self._logger.info('Starting %s script with "%s" cmd', self.name, " ".join(self.cmd))
        super().start()

    def stop(self) -> None:
        """Tell the command to end."""
        self._logger.info("Stopping %s script", self.name)
        process = self._process
        if process is not None:
            process.terminate()

    def run(self) -> None:
        """Run the command and read its output until it ends."""
        try:
            process = subprocess.Popen(
                self.cmd,
                cwd=self.workdir,
                env={"PYTHONUNBUFFERED": "1", **os.environ},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        except OSError as error:
            self._lines.append(str(error))
            self._has_begun.set()
            return
        with process:
            self._process = process
            self._has_begun.set()
            assert process.stdout is not None
            for line in process.stdout:
                self._lines.append(line.rstrip())
                self._logger.info(line.rstrip())
            self.returncode = process.wait()
        self._process = None
        self._logger.info("%s process finished with %s", self.name, self.returncode)

    def __enter__(self) -> ScriptThread:
        self.start()
        self._has_begun.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        self.join(_END_S)


def find_free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
    return port
