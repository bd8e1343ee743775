"""How a failed load reads: Triton's words for a code before the text, as in `Internal: ...`."""

from __future__ import annotations

from zmqtriton_floor.errors import (
    InternalError,
    InvalidArgument,
    NotFound,
    Unavailable,
    Unsupported,
    from_number,
)

_WORDS = {
    InternalError.code: "Internal",
    InvalidArgument.code: "Invalid argument",
    NotFound.code: "Not found",
    Unavailable.code: "Unavailable",
    Unsupported.code: "Unsupported",
}
#: A model's traceback may be long; who wants all of it reads the log.
MAX_REASON = 4096


def describe_error(code: int, text: str) -> str:
    """The reason as tables, the index and the log show it."""
    word = _WORDS.get(from_number(code, "").code, "Internal")
    return f"{word}: {shorten(text)}"


def shorten(text: str) -> str:
    """The end is kept: that is where Python says what was wrong."""
    return text if len(text) <= MAX_REASON else "..." + text[-MAX_REASON + 3 :]
