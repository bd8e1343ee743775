"""The errors that clients get; the same for all ways of answering a request."""

from __future__ import annotations

import logging
import math

from zmqtriton_floor.errors import ZmqTritonError, shortage_of
from zmqtriton_frontends.http_api.inference import json_documents

_log = logging.getLogger(__name__)

#: Statuses of refusals that may soon be over: too many requests, and unavailable.
_RETRYABLE = frozenset((429, 503))
#: Header of such a refusal: room comes back within moments, and whole seconds are the smallest
#: unit.
_RETRY = (("Retry-After", "1"),)
#: Longest time in that header, in seconds: clients of then may find another load.
_MAX_RETRY_S = 300


def response_to(error: ZmqTritonError) -> tuple[int, bytes]:
    """Return the status and the body of an error."""
    return error.http_status, json_documents.write({"error": error.text})


def headers(status: int) -> tuple[tuple[str, str], ...]:
    """Return the further headers of a response with this status."""
    return _RETRY if status in _RETRYABLE else ()


def headers_of(error: ZmqTritonError) -> tuple[tuple[str, str], ...]:
    """Return the further headers of a response that reports the error."""
    own: tuple[tuple[str, str], ...] = getattr(error, "headers", ())
    if not own and error.retry_after_ms and error.http_status in _RETRYABLE:
        return (("Retry-After", str(min(_MAX_RETRY_S, math.ceil(error.retry_after_ms / 1000)))),)
    return own or headers(error.http_status)


def fault(method: str, path: str, error: Exception) -> tuple[int, bytes]:
    """Log a fault of the server; return a response without internal details."""
    # an answer that has begun may end with an error that is no fault
    refusal = error if isinstance(error, ZmqTritonError) else shortage_of(error)
    if refusal is not None:
        return response_to(refusal)
    _log.error("could not answer %s %s", method, path, exc_info=error)
    return 500, json_documents.write({"error": "internal error"})
