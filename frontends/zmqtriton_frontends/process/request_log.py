"""Logs clients' requests as verbose lines, in Triton's words.

If the log is off, a request costs only a look at `is_on`.
"""

from __future__ import annotations

import logging

from zmqtriton_floor import logs
from zmqtriton_floor.settings.codec import decode

_log = logging.getLogger(__name__)

#: Methods as numbered by the HTTP library that Triton uses; 16 is any other.
_METHODS = {
    **{"GET": 0, "HEAD": 1, "POST": 2, "PUT": 3, "DELETE": 4, "MKCOL": 5, "COPY": 6, "MOVE": 7},
    **{"OPTIONS": 8, "PROPFIND": 9, "PROPPATCH": 10, "LOCK": 11, "UNLOCK": 12, "TRACE": 13},
    **{"CONNECT": 14, "PATCH": 15},
}

#: Verbose lines are written.
is_on = False
#: Options of the process's log, by its Bootstrap and every change since.
_options = logs.LogOptions()


def follow(options: logs.LogOptions) -> None:
    """Follow the options of the process's log."""
    global is_on, _options
    _options, is_on = options, bool(options.verbose)


def configure() -> None:
    """Open the process's log, with the present options."""
    logs.configure(_options)


def change(document: str) -> None:
    """Change the process's log, as a wire.LogSettings says."""
    options = decode(logs.LogOptions, document)
    logs.change(options)
    follow(options)


def log_request(method: str, path: str) -> None:
    """Log a request over HTTP."""
    _log.debug("HTTP request: %d %s", _METHODS.get(method, 16), path)


def log_admission(own_id: str, prepared: str) -> None:
    """Log an accepted inference, with its request; `own_id` is the client's id for it."""
    whose = own_id or "<id_unknown>"
    _log.debug("[request id: %s] Setting state from INITIALIZED to INITIALIZED", whose)
    _log.debug("[request id: %s] prepared: %s", whose, prepared)
    _log.debug("[request id: %s] Setting state from INITIALIZED to PENDING", whose)


def log_refusal(own_id: str, text: str) -> None:
    """Log an inference that is refused before it is sent; `own_id` is the client's id for it."""
    if is_on:
        _log.debug("[request id: %s] Infer failed: %s", own_id or "<id_unknown>", text)
