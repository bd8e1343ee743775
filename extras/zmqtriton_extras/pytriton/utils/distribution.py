"""The place of this package."""

from __future__ import annotations

import site
from pathlib import Path


def get_root_module_path() -> Path:
    """Return the directory of this package."""
    return Path(__file__).parents[1]


def is_editable_install() -> bool:
    """Return whether the package is imported from a working tree, not from site-packages."""
    directories = [*site.getsitepackages(), site.getusersitepackages()]
    return not any(get_root_module_path().is_relative_to(directory) for directory in directories)
