"""The errors that a model sees and raises, with texts as in Triton."""

from __future__ import annotations

import enum
import os
import traceback
from typing import Any, Set, Tuple

from zmqtriton_floor import errors, withheld
from zmqtriton_floor.reasons import Kind, Reason, own_frame

_LIBRARY = os.path.dirname(os.__file__)
_STUB = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_FOLDERS = ("", "api", "broker", "execution", "forks", "memory")
#: Folders with code of the stub and the floor; users are not shown frames of these.
_OURS = frozenset(
    os.path.normpath(os.path.join(_STUB, folder))
    for folder in (*_FOLDERS, os.path.dirname(os.path.abspath(errors.__file__)))
)
#: Folders whose frames may stand between our call and the model's first frame.
_BETWEEN = _OURS | {os.path.join(_LIBRARY, "asyncio"), os.path.join(_LIBRARY, "importlib")}
#: Packages of backends: the framework's words are the reason, not the lines of a backend.
_BACKENDS: Set[str] = set()
#: Maximum number of innermost frames, and of outermost ones, in the text of an exception.
_MAX_FRAMES = 10
#: File, line and function.
_Frame = Tuple[str, int, str]
#: The part of an exception's first line that is a value of its reason.
_MAX_MESSAGE = 1024
#: The limit of the wire's type Text.
_MAX_TEXT = 1 << 16
#: The text for a request whose client has left.
CANCELLED = "request was cancelled"


class ErrorCode(enum.IntEnum):
    """Triton's numbers; on the wire each is one higher, since 0 means no error there."""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7

    def __str__(self) -> str:
        """Print as Triton does, in any version of Python."""
        return f"__ErrorCode.{self.name}"


class TritonError:
    """The error of a response."""

    # in the order of Triton's numbers
    (
        UNKNOWN,
        INTERNAL,
        NOT_FOUND,
        INVALID_ARG,
        UNAVAILABLE,
        UNSUPPORTED,
        ALREADY_EXISTS,
        CANCELLED,
    ) = ErrorCode

    __slots__ = ("_code", "_message", "number")

    def __init__(self, message: str, code: ErrorCode = ErrorCode.INTERNAL, status: int = 0) -> None:
        """Set up with an HTTP status, which clients get instead of the code's."""
        self._message = text_of(message, "the message of a TritonError must be a str")
        if not isinstance(code, ErrorCode):
            raise TypeError(f"the code of a TritonError must be one of its own, got {type(code)}")
        self._code = code
        #: The number on the wire.
        self.number = status or errors.BY_CODE[code.name].number

    def code(self) -> ErrorCode:
        """Return the error's code, TritonError.INTERNAL by default."""
        return self._code

    def message(self) -> str:
        """Return the error's text."""
        return self._message


class TritonModelException(Exception):
    """Raised by everything in pb_utils that fails, and by models."""


def leave_out_frames_below(directory: str) -> None:
    """Leave out the frames of a backend's package, which its users have not written."""
    _BACKENDS.add(os.path.join(directory, ""))


def text_of(value: Any, fault: str) -> str:
    """Return a string; bytes are accepted, since models find them in tensors of strings.

    Raises TypeError with the fault for others.
    """
    text = value.decode() if isinstance(value, bytes) else value
    if not isinstance(text, str):
        raise TypeError(f"{fault}, got {type(value)}")
    return text


def clip(text: str) -> str:
    """Return a text that can be sent: of limited length, without half of a surrogate pair."""
    return text[:_MAX_TEXT].encode("utf-8", "replace").decode("utf-8")


def describe(error: BaseException) -> str:
    """Return type, text and the model's frames, innermost first, as Triton's stub prints them.

    Return only the text if the stub itself complains about the model.
    """
    text = _message(error)
    head = f"{type(error).__name__}: {text}"
    if _is_complaint(error):
        return clip(text)
    frames = [f"  {file}({line}): {function}\n" for file, line, function in _all_frames(error)]
    if len(frames) > 2 * _MAX_FRAMES:
        frames[_MAX_FRAMES:-_MAX_FRAMES] = [f"  ... {len(frames) - 2 * _MAX_FRAMES} frames\n"]
    return clip(head + "\n\nAt:\n" + "".join(frames) if frames else head)


def reason_of(error: BaseException) -> Reason:
    """Return the reason of a load that failed with this error."""
    text = describe(error)
    if _is_complaint(error):
        return Reason.of(Kind.OTHER, text)
    frames = _all_frames(error)
    file, line, function = own_frame(frames) if frames else ("", 0, "")
    return Reason.of(
        Kind.EXCEPTION,
        text,
        exception=type(error).__name__,
        message=clip(_message(error).partition("\n")[0][:_MAX_MESSAGE]),
        file=file,
        line=line,
        function=function,
    )


def _message(error: BaseException) -> str:
    try:
        return (str(error) or "<EMPTY MESSAGE>") + withheld.hint(error)
    except Exception as failure:  # noqa: BLE001 - a model's own __str__ may raise anything
        return f"<MESSAGE UNAVAILABLE DUE TO {type(failure).__name__}>"


def _is_complaint(error: BaseException) -> bool:
    """Return True if the stub itself complains about the model, so that the text is enough."""
    return isinstance(error, TritonModelException) and not _frames(error)


def _all_frames(error: BaseException) -> list[_Frame]:
    """Return the model's frames or, without any, the frames of a backend's package."""
    return _frames(error) or _frames(error, has_backends=True)


def _frames(error: BaseException, has_backends: bool = False) -> list[_Frame]:
    frames: list[_Frame] = []
    for frame, number in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        if not has_backends and code.co_filename.startswith(tuple(_BACKENDS)):
            continue
        directory = os.path.dirname(code.co_filename)
        # "<frozen importlib._bootstrap>" has no directory
        skipped = _OURS if frames else _BETWEEN
        if directory not in skipped and not code.co_filename.startswith("<frozen"):
            frames.append((code.co_filename, number, code.co_name))
    return frames[::-1]
