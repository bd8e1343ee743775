"""Directories that belong to another user, which a server must not take."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root's rights to give files away")

#: A link of another user's to a directory of one's own, and a directory of that user.
foreign = pytest.mark.parametrize("is_link", [True, False])


def own_and_foreign(directory: Path, *, is_link: bool) -> tuple[Path, Path]:
    """Make a directory of this user and one of another, or that user's link to the first."""
    own, other = directory / "own", directory / "other"
    own.mkdir()
    if is_link:
        other.symlink_to(own)
    else:
        other.mkdir()
    os.chown(other, 1234, 1234, follow_symlinks=False)
    return own, other
