"""What clients are told of a request that failed; the same whichever way it was answered.

Used by app.py and fast_path.py.
"""

from __future__ import annotations

import logging

from zmqtriton_floor.errors import NO_MEMORY, Unavailable, ZmqTritonError
from zmqtriton_frontends.http_api.inference import json_documents
from zmqtriton_frontends.inference.catalogue import STOPPING

_log = logging.getLogger(__name__)

_UNAVAILABLE = 503
#: Whoever is told this had better connect anew: there may be others who serve.
FAREWELL = json_documents.write({"error": STOPPING})
#: What is refused for lack of room has it within moments; whole seconds are all there is.
_RETRY = (("Retry-After", "1"),)
#: A client's own names come back in the texts of its errors; a model's own texts are not cut.
_MAX_CLIENT_ERROR = 3000


def told(error: ZmqTritonError) -> tuple[int, bytes]:
    """The status and the body."""
    text = error.text
    if error.http_status < 500 and len(text) > _MAX_CLIENT_ERROR:
        text = text[:_MAX_CLIENT_ERROR] + " ..."
    return error.http_status, json_documents.write({"error": text})


def headers(status: int) -> tuple[tuple[str, str], ...]:
    """What else an answer with this status has."""
    return _RETRY if status == _UNAVAILABLE else ()


def fault(method: str, path: str, error: Exception) -> tuple[int, bytes]:
    """A fault of ours: the log has it, the client learns nothing of our insides."""
    if isinstance(error, MemoryError):
        return told(Unavailable(NO_MEMORY))
    _log.error("could not answer %s %s", method, path, exc_info=error)
    return 500, json_documents.write({"error": "internal error"})
