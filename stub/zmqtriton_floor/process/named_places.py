"""A directory that somebody has named for servers: each has one of its own in it, by a number.

Two are there while one takes the place of the other. Whoever leaves last clears up: the supervisor,
or its broker if it was killed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK = "lock"
#: In the lock of a directory that a server has made: the last one there removes it.
MADE = b"made by a server"
#: Who starts or ends there keeps others waiting for some milliseconds.
_ALONE_WITHIN_S = 2.0


@contextmanager
def alone(path: Path) -> Iterator[int]:
    """Let nobody else start or end in a named directory. Raises OSError."""
    deadline_s = time.monotonic() + _ALONE_WITHIN_S
    while (lock := try_lock(path)) is None:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"'{path}' is in use by another server")
        time.sleep(0.01)
    try:
        yield lock
    finally:
        os.close(lock)


def living(path: Path) -> set[Path]:
    """Return the directories of the servers that run in it."""
    return {entry for entry in path.iterdir() if entry.name.isdigit() and is_locked(entry)}


def is_locked(home: Path) -> bool:
    try:
        lock = os.open(home / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def leave(path: Path) -> None:
    """Clear the directory behind its last server. Raises OSError."""
    with alone(path) as lock:
        if living(path):
            for entry in path.iterdir():
                if entry.is_symlink() and not entry.exists():
                    entry.unlink()
        elif os.pread(lock, len(MADE), 0) == MADE:
            shutil.rmtree(path, ignore_errors=True)
        else:
            clear(path)


def try_lock(path: Path) -> int | None:
    """Return the descriptor of the lock, or None if another process has it.

    Children do not inherit it.
    """
    lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def clear(path: Path) -> None:
    """Remove what an earlier server has left, except the lock."""
    for entry in path.iterdir():
        if entry.name == LOCK:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
