"""The directory of environments that are unpacked and built: where it is, and that it is in use."""

from __future__ import annotations

import fcntl
import os

#: Locked by servers, whose models use what is in the cache.
IN_USE = "in-use"


def default_root(*, is_shared: bool = False) -> str:
    """Return the directory that systemd names, or below the cache directory of the user.

    Of the system, if it is shared with other users.
    """
    directory = os.environ.get("CACHE_DIRECTORY", "").partition(":")[0]
    if directory:
        return os.path.join(directory, "environments")
    if is_shared:
        return "/var/cache/zmqtriton/environments"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(home, "zmqtriton", "environments")


def lock_in_use(root: str) -> int | None:
    """Return a descriptor that keeps everybody from cleaning while it is open.

    For a server, whose models use entries.
    """
    path = os.path.join(root, IN_USE)
    try:
        os.makedirs(root, 0o700, exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        return None  # whoever prepares the environment will report it
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pass  # it is being cleaned: what is missing then will be made again
    return descriptor
