"""Checks of the directories that hold secrets of add-ons."""

from __future__ import annotations

import os
from pathlib import Path


def check_owner(directory: Path) -> None:
    """Raise PermissionError for the directory or the link of another user."""
    for status in (directory.lstat(), directory.stat()):
        if status.st_uid not in (os.geteuid(), 0):
            raise PermissionError(
                f"'{directory}' belongs to another user: remove it, or name another"
            )
