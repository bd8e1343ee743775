"""Standard streams of commands: opens closed ones, escapes letters, notices unread pipes."""

from __future__ import annotations

import io
import os
import select
import sys
from contextlib import suppress


def open_closed() -> None:
    """Open /dev/null in place of closed standard streams.

    Otherwise a socket or a file would get the number of the stream, and text that is printed. Call
    this before anything else is opened.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest that is free, thus this number
            os.set_inheritable(opened, True)
            if getattr(sys, name) is None:
                setattr(sys, name, open(opened, mode, closefd=False))  # noqa: SIM115


def escape_unencodable() -> None:
    """Have letters that the terminal's encoding lacks written as escapes, as on stderr."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def is_unread() -> bool:
    """Return True for a pipe whose other end is closed."""
    poll = select.poll()
    with suppress(io.UnsupportedOperation):  # a test's has no descriptor
        poll.register(sys.stdout.fileno(), 0)
    return bool(poll.poll(0))


def discard() -> None:
    """Drop the unwritten output; Python would complain at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
