"""The errors of the in-process API, and what the server's own errors become there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from zmqtriton_floor.errors import ZmqTritonError

__all__ = [
    "AlreadyExistsError",
    "InternalError",
    "InvalidArgumentError",
    "NotFoundError",
    "TritonError",
    "UnavailableError",
    "UnknownError",
    "UnsupportedError",
]


class TritonError(Exception):
    """Base of all errors: the text, and the response if it came as one."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class UnknownError(TritonError):
    """Any error without a class of its own, such as that of a cancelled request."""


class InternalError(TritonError):
    """Raised when the server or a model has failed."""


class NotFoundError(TritonError):
    """Raised when a model, a version or a file does not exist."""


class InvalidArgumentError(TritonError):
    """Raised when a call or a request is wrong."""


class UnavailableError(TritonError):
    """Raised when the same call could succeed later."""


class UnsupportedError(TritonError):
    """Raised when a call is understood but not supported."""


class AlreadyExistsError(TritonError):
    """Raised when a name is taken."""


_BY_CODE: dict[str, type[TritonError]] = {
    "INTERNAL": InternalError,
    "NOT_FOUND": NotFoundError,
    "INVALID_ARG": InvalidArgumentError,
    "UNAVAILABLE": UnavailableError,
    "UNSUPPORTED": UnsupportedError,
    "ALREADY_EXISTS": AlreadyExistsError,
}


def translate(error: ZmqTritonError) -> TritonError:
    """Return the error of this API for one of the server's."""
    return _BY_CODE.get(error.code, UnknownError)(error.text)


@contextmanager
def translation() -> Iterator[None]:
    """Raise the server's errors as errors of this API."""
    try:
        yield
    except ZmqTritonError as error:
        raise translate(error) from error
