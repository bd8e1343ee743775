"""A server in the foreground of a terminal ends when the terminal is closed."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

#: A shell's part: makes stdin the terminal of a session, and runs the arguments in its foreground.
_IN_TERMINAL = """
import fcntl, os, signal, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
# the tests themselves may run under nohup
signal.signal(signal.SIGHUP, signal.SIG_IGN if sys.argv[1] == "nohup" else signal.SIG_DFL)
os.execvp(sys.argv[2], sys.argv[2:])
"""


def _in_terminal(server: Server, how: str) -> tuple[int, subprocess.Popen[bytes]]:
    """Start the server in a terminal; return the terminal's other end, and the process."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", _IN_TERMINAL, how, *server.command],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    return ours, process


def test_a_server_in_the_foreground_ends_with_its_terminal(tmp_path: Path) -> None:
    server = Server(tmp_path / "s", ["add_sub"], frontends=())
    terminal, process = _in_terminal(server, "foreground")
    try:
        eventually(server.is_ready, 60, "it serves")
        os.kill(process.pid, signal.SIGHUP)  # the terminal is there: nothing happens
        assert server.is_ready()

        os.close(terminal)
        os.kill(process.pid, signal.SIGHUP)  # a shell's, beside the kernel's

        eventually(lambda: process.poll() is not None, 60, "it has ended")
        assert 0 == process.returncode
    finally:
        process.kill()
        process.wait()


@pytest.mark.long(
    "system/operations/test_terminal.py::test_a_server_in_the_foreground_ends_with_its_terminal",
    "system/operations/test_log_file.py::test_after_sighup_every_process_writes_to_a_new_file",
)
def test_a_server_under_nohup_goes_on(tmp_path: Path) -> None:
    server = Server(tmp_path / "s", ["add_sub"], frontends=())
    terminal, process = _in_terminal(server, "nohup")
    try:
        eventually(server.is_ready, 60, "it serves")
        os.close(terminal)
        assert server.is_ready()
    finally:
        process.terminate()
        assert 0 == process.wait(60)
