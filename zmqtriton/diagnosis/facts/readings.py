"""Texts of /proc, /sys and /etc, where a file may be missing or forbidden."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

ROOT = Path("/")


def read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def process_field(pid: int, name: str, root: Path = ROOT) -> str:
    """Return a field of a process's status, or ""."""
    match = re.search(rf"^{name}:\s+(.*)$", read(root / "proc" / str(pid) / "status"), re.MULTILINE)
    return match[1] if match else ""


def size(number: float) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB")):
        if number >= unit:
            return f"{number / unit:.1f} {name}"
    return f"{number / 1024:.0f} KiB"


def is_elsewhere(path: str, pid: int, root: Path = ROOT) -> bool:
    """True if a process sees a file at this path that this process does not see there."""
    for place in (path, os.path.dirname(path)):
        with suppress(OSError):  # it is not there; or of another user, of whom nothing is known
            theirs = os.stat(f"{root}/proc/{pid}/root{place}")
            try:
                return not os.path.samestat(theirs, os.stat(place))
            except FileNotFoundError:
                return True
    return False
