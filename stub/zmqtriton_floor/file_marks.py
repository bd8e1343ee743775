"""The mark of a file; it changes when the file does."""

from __future__ import annotations

import os
from typing import Tuple


def mark_of(path: str) -> Tuple[int, ...]:
    """Return the mark of a file; an empty one if the file does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    # the last is that of a change of the mode, too
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
