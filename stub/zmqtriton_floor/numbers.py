"""Numbers of clients, which are checked before they become limits, sizes or times."""

from __future__ import annotations

import re
from typing import Any, Optional, Union

from zmqtriton_floor.errors import InvalidArgument

#: A number without NaN, infinity or an exponent, and with few digits, which are quickly read.
_TEXT = re.compile(r"-?[0-9]{1,19}(\.[0-9]{1,19})?")


def in_text(text: str) -> Optional[Union[float, int]]:
    """Return the number in a client's text, to be checked by number() or integer()."""
    if not _TEXT.fullmatch(text):
        return None
    return float(text) if "." in text else int(text)


def number(name: str, value: Any, least: float, greatest: float) -> float:
    """Return a client's number.

    Raises InvalidArgument for another type, and for a number that is not from `least` to
    `greatest`.
    """
    # NaN is in no range
    if type(value) not in (int, float) or not least <= value <= greatest:
        raise InvalidArgument(f"'{name}' must be a number from {least:,.15g} to {greatest:,.15g}")
    return float(value)


def integer(name: str, value: Any, least: int, greatest: int) -> int:
    """Return a client's integer. Raises InvalidArgument for another type, or outside the range."""
    if type(value) is not int or not least <= value <= greatest:
        raise InvalidArgument(f"'{name}' must be an integer from {least:,} to {greatest:,}")
    return value
