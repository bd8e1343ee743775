"""The text of a failed load: Triton's word for the code and the reason, as in `Internal: ...`."""

from __future__ import annotations

from zmqtriton_floor.errors import (
    InternalError,
    InvalidArgument,
    NotFound,
    Unavailable,
    Unsupported,
    ZmqTritonError,
    from_number,
)
from zmqtriton_floor.reasons import Reason

_WORDS = {
    InternalError.code: "Internal",
    InvalidArgument.code: "Invalid argument",
    NotFound.code: "Not found",
    Unavailable.code: "Unavailable",
    Unsupported.code: "Unsupported",
}
#: A model's traceback may be long; the log has all of it.
MAX_REASON = 4096


def describe_error(error: ZmqTritonError) -> Reason:
    """Return the reason as tables, the index and the log show it."""
    word = _WORDS.get(from_number(error.number, "").code, "Internal")
    return error.reason._replace(text=f"{word}: {shorten(error.text)}")


def shorten(text: str) -> str:
    """Shorten a text from the front: at the end Python names the error."""
    return text if len(text) <= MAX_REASON else "..." + text[-MAX_REASON + 3 :]
