"""The errors that the clients raise."""

from __future__ import annotations

#: Texts that clients get, and tracebacks, have the public name.
__name__ = "zmqtriton.pytriton.client.exceptions"


class PyTritonClientError(Exception):
    """The base of all errors of the clients."""

    def __init__(self, message: str) -> None:
        super().__init__(message)

    @property
    def message(self) -> str:
        return str(self)


class PyTritonClientValueError(PyTritonClientError):
    """Raised if an argument cannot be used."""


class PyTritonClientInvalidUrlError(PyTritonClientValueError):
    """Raised if an address is no `http` or `grpc` URL."""


class PyTritonClientTimeoutError(PyTritonClientError):
    """Raised if there is no server, or if it, the model or a response is not ready in time."""


class PyTritonClientModelUnavailableError(PyTritonClientError):
    """An error for scripts that catch it; here, an unavailable model raises a timeout."""


class PyTritonClientClosedError(PyTritonClientError):
    """Raised if a closed client is used."""


class PyTritonClientModelDoesntSupportBatchingError(PyTritonClientError):
    """Raised by `infer_batch` if the model takes no batches."""


class PyTritonClientInferenceServerError(PyTritonClientError):
    """Raised if the server or the model refuses a request, with its text."""


class PyTritonClientQueueFullError(PyTritonClientError):
    """Raised if the maximum of requests waits in a FuturesModelClient."""
