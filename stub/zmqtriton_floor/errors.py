"""The errors that may reach a client, each with its Triton code and its HTTP and gRPC statuses.

    Exception
    └─ ZmqTritonError           INTERNAL
       ├─ UnknownError          UNKNOWN
       ├─ InternalError         INTERNAL
       ├─ NotFound              NOT_FOUND
       ├─ InvalidArgument       INVALID_ARG
       ├─ Unavailable           UNAVAILABLE
       ├─ Unsupported           UNSUPPORTED
       ├─ AlreadyExists         ALREADY_EXISTS
       ├─ Cancelled             CANCELLED
       ├─ DeadlineExceeded      DEADLINE_EXCEEDED   not one of Triton's
       ├─ LimitExceeded         RESOURCE_EXHAUSTED  likewise
       ├─ StatusError           the nearest   a status that a model has chosen
       └─ ProtocolError         INTERNAL      a message of ours that does not decode

Errors cross processes as (number, text), never pickled; `from_number` makes them errors again.
A frontend needs one `except ZmqTritonError`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, TypeVar

from zmqtriton_floor.descriptions import clipped
from zmqtriton_floor.reasons import Kind, Reason

Error = TypeVar("Error", bound="ZmqTritonError")


class ZmqTritonError(Exception):
    """Base of all errors with a status; its only argument is the text that the client reads."""

    code = "INTERNAL"
    #: Code of this error in messages between processes. 0 means "no error" there, so that a reply
    #: needs no second field.
    number = 2
    http_status = 500
    #: The integer value of grpc.StatusCode, so that this file does not import grpc.
    grpc_status = 13
    #: Milliseconds after which a client should try again; 0 if unknown.
    retry_after_ms = 0

    _reason: Reason | None = None

    @property
    def text(self) -> str:
        """The text, of at most MAX_TEXT_BYTES."""
        return clipped(str(self.args[0])) if self.args else ""

    @property
    def reason(self) -> Reason:
        """The reason of a failure: the text, with its kind and values if it has some."""
        return self._reason or Reason(Kind.OTHER, {}, self.text)

    def because(self: Error, kind: Kind, cause: Reason | None = None, **values: Any) -> Error:
        """Add a reason of this kind to the error, and return the error for a `raise`."""
        self._reason = Reason(kind, values, self.text, cause)
        return self

    def again(self: Error) -> Error:
        """Return a copy to raise: a frame that keeps the error it raises would form a cycle."""
        twin = type(self).__new__(type(self), *self.args)
        twin.__dict__.update(self.__dict__)
        return twin


#: Ends the text of a refusal because a limit of unanswered requests is reached.
OVERLOADED = "Exceeds maximum queue size"
#: The text if a tensor cannot be read because its owner is dead, and its memory was not kept.
MEMORY_GONE = "the memory of a tensor is gone with the process that owned it"
#: The text if a process has no memory for a request.
NO_MEMORY = "Out of memory for this request; retry later"
#: The text if a process cannot have another thread for a request, and what Python says of that.
NO_THREAD = "No thread is to be had for this request (see ulimit -u, pids.max); retry later"
TOO_MANY_UNREAD = "too many answers of this server wait for clients that do not read them"


class UnknownError(ZmqTritonError):
    """Raised when a model reports UNKNOWN; as in Triton, its HTTP status is 400."""

    code, number, http_status, grpc_status = "UNKNOWN", 1, 400, 2


class InternalError(ZmqTritonError):
    """Raised when the server or a model failed on a valid request."""


class NotFound(ZmqTritonError):
    """Raised when a named version, region or file does not exist."""

    code, number, http_status, grpc_status = "NOT_FOUND", 3, 404, 5


class InvalidArgument(ZmqTritonError):
    """Raised when the request itself is wrong."""

    code, number, http_status, grpc_status = "INVALID_ARG", 4, 400, 3


class Unavailable(ZmqTritonError):
    """Raised when the same request could succeed later: not ready, full, expired, stopping."""

    code, number, http_status, grpc_status = "UNAVAILABLE", 5, 503, 14


class Unsupported(ZmqTritonError):
    """Raised when the request is understood but not supported."""

    code, number, http_status, grpc_status = "UNSUPPORTED", 6, 501, 12


class AlreadyExists(ZmqTritonError):
    """Raised when a name is taken."""

    code, number, http_status, grpc_status = "ALREADY_EXISTS", 7, 400, 6


class Cancelled(ZmqTritonError):
    """Raised when the client no longer wants the answer."""

    code, number, http_status, grpc_status = "CANCELLED", 8, 400, 1


class DeadlineExceeded(ZmqTritonError):
    """Raised when the deadline that a client has set for its request has passed."""

    code, number, http_status, grpc_status = "DEADLINE_EXCEEDED", 9, 504, 4


class LimitExceeded(ZmqTritonError):
    """Raised when a client exceeds a limit of its own; the text says when it may try again."""

    code, number, http_status, grpc_status = "RESOURCE_EXHAUSTED", 10, 429, 8


#: gRPC's status and Triton's code for statuses that a model chooses; others have those of 400 or
#: 500.
_OF_STATUS = {
    401: (16, "INVALID_ARG"),
    403: (7, "INVALID_ARG"),
    404: (5, "NOT_FOUND"),
    408: (4, "CANCELLED"),
    409: (6, "ALREADY_EXISTS"),
    429: (8, "UNAVAILABLE"),
    499: (1, "CANCELLED"),
    501: (12, "UNSUPPORTED"),
    503: (14, "UNAVAILABLE"),
    504: (4, "CANCELLED"),
}


class StatusError(ZmqTritonError):
    """Raised when a model has answered a request with an HTTP status that it chose."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.number = self.http_status = status
        nearest = (3, "INVALID_ARG") if status < 500 else (13, "INTERNAL")
        self.grpc_status, self.code = _OF_STATUS.get(status, nearest)


class ProtocolError(ZmqTritonError):
    """Raised when a message between our processes does not decode; names kind and field."""


_BY_NUMBER: dict[int, type[ZmqTritonError]] = {
    cls.number: cls
    for cls in (
        UnknownError,
        InternalError,
        NotFound,
        InvalidArgument,
        Unavailable,
        Unsupported,
        AlreadyExists,
        Cancelled,
        DeadlineExceeded,
        LimitExceeded,
    )
}
BY_CODE: dict[str, type[ZmqTritonError]] = {cls.code: cls for cls in _BY_NUMBER.values()}


def from_number(number: int, text: str, reason: Reason | None = None) -> ZmqTritonError:
    """Return the error that travelled as (number, text); an unknown number is an INTERNAL error."""
    error = (
        StatusError(text, number)
        if number >= InvalidArgument.http_status
        else _BY_NUMBER.get(number, InternalError)(text)
    )
    error._reason = reason
    return error


def shortage_of(error: Exception) -> Unavailable | None:
    """Return the error for the client if memory or threads are short; None for other errors."""
    if isinstance(error, MemoryError):
        return Unavailable(NO_MEMORY)
    is_thread = isinstance(error, RuntimeError) and str(error) == "can't start new thread"
    return Unavailable(NO_THREAD) if is_thread else None


#: Limits on the search for a similar name, as clients choose both the word and the names: letters
#: of all names that are compared, and letters of the word.
_COMPARED_LETTERS = 100_000
_COMPARED_WORD = 128
#: Names that other software has for types and kinds, with ours. Compared by its letters, each of
#: them would suggest a wrong one.
_ALIASES = {
    **{word: "FP32" for word in ("FLOAT", "FLOAT32", "SINGLE")},
    **{word: "FP64" for word in ("DOUBLE", "FLOAT64")},
    **{word: "FP16" for word in ("HALF", "FLOAT16")},
    **{word: "BYTES" for word in ("STR", "TEXT", "OBJECT")},
    **{word: "TYPE_STRING" for word in ("TYPE_STR", "TYPE_TEXT", "TYPE_BYTES", "TYPE_OBJECT")},
    **{"INT": "INT32", "LONG": "INT64", "BOOLEAN": "BOOL"},
    **{"KIND_CUDA": "KIND_GPU", "KIND_HOST": "KIND_CPU"},
}


def closest_match(word: str, names: Iterable[str]) -> str:
    """Return the name that was probably meant, or ""."""
    import difflib  # only for an error

    if len(word) > _COMPARED_WORD:
        return ""
    compared = list(islice((k for k in names if k != word), _COMPARED_LETTERS // max(1, len(word))))
    typed = word.upper()
    alias = _ALIASES.get(typed) or _ALIASES.get(typed[len("TYPE_") :])
    same = [
        name
        for name in compared
        if name in (alias, f"TYPE_{alias}") or sorted(name) == sorted(word)
    ]
    matches = same or difflib.get_close_matches(word, compared, n=1, cutoff=0.6)
    return matches[0] if matches else ""
