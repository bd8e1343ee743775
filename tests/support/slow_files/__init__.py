"""A file system that takes its time, or never answers, over a directory: as a network's may."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.needs import ROOT
from tests.support.waiting import eventually


class SlowFiles:
    """The files of `source`, read-only, at `place`; each call on them may be delayed or held.

    A process that waits for a held call cannot be killed, as with a file system that hangs.
    """

    def __init__(self, source: Path, place: Path) -> None:
        if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
            pytest.skip("only root can mount a file system of its own, where there is /dev/fuse")
        place.mkdir(parents=True)
        self._source = source
        self.place = place
        self._command = [sys.executable, "-m", "tests.support.slow_files.process"]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> SlowFiles:
        command = [*self._command, str(self._source), str(self.place)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"mounted\n":
            self._process.wait()
            pytest.skip("no file system may be mounted here")
        return self

    def __exit__(self, *error: object) -> None:
        """Unmount it; calls that wait fail."""
        assert self._process is not None
        self._process.communicate(timeout=60)

    def delay(self, delay_s: float, below: str = "") -> None:
        """Let each open, stat and listing below a folder take so long from now on; 0: no time."""
        self._order(f"delay {delay_s} {below}")

    def hold(self, below: str = "") -> None:
        """Answer no open, stat or listing below a folder until it has a delay again."""
        self._order(f"delay inf {below}")

    @property
    def waiting(self) -> int:
        """The number of calls that wait."""
        return int(self._order("waiting"))

    def await_call(self, number: int = 1) -> None:
        """Wait until so many calls wait."""
        eventually(lambda: self.waiting >= number, 60, "somebody reads the files")

    def _order(self, words: str) -> str:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(words.encode() + b"\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().decode().strip()
