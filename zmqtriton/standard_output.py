"""Standard output of commands: letters that it cannot encode, and a pipe that nobody reads."""

from __future__ import annotations

import io
import os
import select
import sys
from contextlib import suppress


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
