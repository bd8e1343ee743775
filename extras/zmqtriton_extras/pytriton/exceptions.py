"""The errors of PyTriton's API; the client's have a module of their own."""

from __future__ import annotations

#: Texts that clients get, and tracebacks, have the public name.
__name__ = "zmqtriton.pytriton.exceptions"


class PyTritonError(Exception):
    """The base of all errors of this package."""

    def __init__(self, message: str) -> None:
        super().__init__(message)

    @property
    def message(self) -> str:
        return str(self)


class PyTritonValidationError(PyTritonError):
    """Raised if the user's settings cannot work."""


class PyTritonInvalidOperationError(PyTritonError):
    """Raised if an operation is not possible in this state."""


class PyTritonBadParameterError(PyTritonError):
    """Raised if a parameter does not fit the model."""


class PyTritonModelConfigError(PyTritonError):
    """Raised if a model's configuration cannot be read."""


class PyTritonUnrecoverableError(PyTritonError):
    """Raised by an inference callable that can serve no further request; the server stops."""


class PyTritonRuntimeError(PyTritonError):
    """Raised for errors that belong to no other class."""
