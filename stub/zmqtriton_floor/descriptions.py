"""Descriptions of clients' names and values for error texts, which never show the value."""

from __future__ import annotations

from typing import Any, Tuple

#: Maximum size of an error's text.
MAX_TEXT_BYTES = 4000
#: Letters of a client's name that an error shows.
_SHOWN_LETTERS = 77
#: Types with the words for one value, and for what its length counts.
_KINDS: Tuple[Tuple[Any, str, str], ...] = (
    (bool, "a boolean", ""),
    (float, "a number", ""),
    (str, "a text", "letter"),
    ((bytes, bytearray, memoryview), "bytes", "byte"),
    ((list, tuple), "a list", "element"),
    (dict, "an object", "member"),
)


def clipped(text: str) -> str:
    """Return a text of at most MAX_TEXT_BYTES; a longer one keeps its beginning and its end."""
    data = text.encode("utf-8", "replace") if len(text) > MAX_TEXT_BYTES // 4 else b""
    if len(data) <= MAX_TEXT_BYTES:
        return text
    parts = data[: MAX_TEXT_BYTES * 3 // 4], data[-MAX_TEXT_BYTES // 8 :]
    return " ... ".join(part.decode("utf-8", "ignore") for part in parts)


def shown(name: Any) -> str:
    """Return a name of a client as an error shows it."""
    text = str(name)
    return text if len(text) <= _SHOWN_LETTERS else f"{text[:_SHOWN_LETTERS]}..."


def described(value: Any) -> str:
    """Return the type and length of a client's value, for an error that must not show the value."""
    for kinds, what, unit in _KINDS:
        if isinstance(value, kinds):
            count = len(value) if unit else 0
            return f"{what} of {count} {unit}{'s' * (count != 1)}" if unit else what
    if hasattr(value, "dtype"):
        return f"an array of {value.dtype} of shape {[*value.shape]}"
    if isinstance(value, int):
        return "an integer" if abs(value) < 1 << 63 else "an integer of more than 64 bits"
    return "null" if value is None else f"a value of type {shown(type(value).__name__)}"
