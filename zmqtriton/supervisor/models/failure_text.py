"""The text of a failed load: Triton's word for the code and the reason, as in `Internal: ...`."""

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
#: A model's traceback may be long; the log has all of it.
MAX_REASON = 4096


def describe_error(code: int, text: str) -> str:
    """Return the reason as tables, the index and the log show it."""
    word = _WORDS.get(from_number(code, "").code, "Internal")
    return f"{word}: {shorten(text)}"


def shorten(text: str) -> str:
    """Shorten a text from the front: at the end Python says what was wrong."""
    return text if len(text) <= MAX_REASON else "..." + text[-MAX_REASON + 3 :]
