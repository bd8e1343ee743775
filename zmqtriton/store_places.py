"""Tells repositories in stores from directories; only the add-on knows the kinds of stores."""

from __future__ import annotations

import re

_REMOTE_URL = re.compile(r"(s3|gs|as|hf|oci)://", re.DOTALL)


def is_remote(path: str) -> bool:
    """True if a repository is in a store, not a directory."""
    return _REMOTE_URL.match(path) is not None
