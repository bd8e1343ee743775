"""The refusals of access; none of them shows a token or facts that its holder may not see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from zmqtriton_floor.errors import ZmqTritonError

Headers = tuple[tuple[str, str], ...]

#: Refusals of this process so far, by reason.
counts: Counter[str] = Counter()
MISSING, UNKNOWN, EXPIRED, SEVERAL = "missing", "unknown", "expired", "several"
#: Reason of a refusal if a restricted API was called without its key, or with a wrong one.
KEY = "key"
#: The code of a refusal that is no AccessRefused: a missing key, a foreign page or host name.
NOT_PERMITTED = "PERMISSION_DENIED"


class Source(NamedTuple):
    """The origin of a request, for logs."""

    #: `http`, `websocket`, `grpc` or `zmq`.
    protocol: str
    #: The client's address, or its proxy's; "" if it is not known.
    address: str
    #: The method and the path without its query, the name of the RPC, or the verb.
    route: str


class Refusal(NamedTuple):
    """A request that was refused for lack of access."""

    source: Source
    code: str
    text: str
    #: The name of the model in the request; "" without one.
    model: str = ""
    #: The name of a valid token that does not have this right.
    token: str = ""


#: Functions that get each refusal of this process: an access log is no part of what refuses.
listeners: list[Callable[[Refusal], None]] = []


def report(source: Source, error: ZmqTritonError, model: str = "") -> None:
    """Report the refusal of a request to the listeners, each error once."""
    token = ""
    if isinstance(error, AccessRefused):
        if error.is_reported:
            return
        error.is_reported, token = True, error.token
    report_text(source, error.code, error.text, model, token)


def report_text(source: Source, code: str, text: str, model: str = "", token: str = "") -> None:
    """Report a refusal without an error object to the listeners."""
    for listener in listeners:
        listener(Refusal(source, code, text, model, token))


class AccessRefused(ZmqTritonError):
    """Base of the refusals, which have headers for HTTP."""

    headers: Headers = ()
    #: The name of the client's token, if that is valid.
    token = ""
    #: Set once the listeners have it; several places may report an error on its way to the client.
    is_reported = False

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        counts[reason] += 1


class Unauthenticated(AccessRefused):
    """Raised when there is no valid token."""

    code, http_status, grpc_status = "UNAUTHENTICATED", 401, 16

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text, reason)
        problem = "" if reason == MISSING else ' error="invalid_token"'
        self.headers = (("WWW-Authenticate", f"Bearer{problem}"),)


class Forbidden(AccessRefused):
    """Raised when a valid token does not grant this call."""

    code, http_status, grpc_status = "PERMISSION_DENIED", 403, 7

    def __init__(self, text: str, scope: str = "") -> None:
        super().__init__(text, "forbidden")
        named = f', scope="{scope}"' if scope else ""
        self.headers = (("WWW-Authenticate", f'Bearer error="insufficient_scope"{named}'),)


class TooManyFailures(AccessRefused):
    """Raised in place of Unauthenticated for an address that has presented many wrong tokens."""

    code, http_status, grpc_status = "RESOURCE_EXHAUSTED", 429, 8

    def __init__(self, wait_s: int) -> None:
        super().__init__(
            f"Too many wrong tokens came from this address, retry after {wait_s} s or with a valid "
            "one",
            "too_many_failures",
        )
        self.headers = (("Retry-After", str(wait_s)),)
