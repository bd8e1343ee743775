"""Texts of /proc, /sys and /etc, where a file may be missing or forbidden."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path("/")


def read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def process_field(pid: int, name: str, root: Path = ROOT) -> str:
    """Return a field of a process's status, or ""."""
    text = read(root / "proc" / str(pid) / "status")
    match = re.search(rf"^{name}:\s+(.*)$", text, re.MULTILINE)
    return match[1] if match else ""


def size(number: float) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB")):
        if number >= unit:
            return f"{number / unit:.1f} {name}"
    return f"{number / 1024:.0f} KiB"
