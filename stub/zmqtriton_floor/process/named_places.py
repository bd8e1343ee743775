"""A runtime directory chosen by the user, where each server has a numbered directory of its own.

There are two servers while one takes over from the other. The last process to leave clears the
directory: the supervisor, or its broker if the supervisor was killed.
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
#: Content of the lock file if a server has made the directory. The last server to leave then
#: removes it, instead of clearing it.
MADE = b"made by a server"
#: Time to wait for the lock, which a server that starts or ends holds for some milliseconds.
_ALONE_WITHIN_S = 2.0


@contextmanager
def alone(path: Path) -> Iterator[int]:
    """Keep other servers from starting or ending in a named directory. Raises OSError."""
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
    """Clear the directory if its last server has left. Raises OSError."""
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
