"""Sizes in bytes, as options and parameters of models have them: `1048576`, `512M`, `70G`."""

from __future__ import annotations

import re

_SIZE = re.compile(r"([0-9]{1,18})([KMGTkmgt]?)")


def parse_size(text: str) -> int | None:
    """Return the number of bytes that a text means; None for a text that is not a size."""
    match = _SIZE.fullmatch(text)
    return int(match[1]) << 10 * " KMGT".index(match[2].upper() or " ") if match else None
