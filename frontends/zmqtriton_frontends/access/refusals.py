"""The refusals of access. None of them shows a token, or anything that a token is not good for."""

from __future__ import annotations

from collections import Counter

from zmqtriton_floor.errors import ZmqTritonError

Headers = tuple[tuple[str, str], ...]

#: How many there were in this process, by reason.
counts: Counter[str] = Counter()
MISSING, UNKNOWN, EXPIRED, SEVERAL = "missing", "unknown", "expired", "several"
#: A restricted API was called without its key, or with a wrong one.
KEY = "key"
_FORBIDDEN, _TOO_MANY = "forbidden", "too_many_failures"


class AccessRefused(ZmqTritonError):
    """Base of the refusals, each with headers for HTTP."""

    headers: Headers = ()

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
    """Raised when a valid token is not good for this."""

    code, http_status, grpc_status = "PERMISSION_DENIED", 403, 7

    def __init__(self, text: str, scope: str = "") -> None:
        super().__init__(text, _FORBIDDEN)
        named = f', scope="{scope}"' if scope else ""
        self.headers = (("WWW-Authenticate", f'Bearer error="insufficient_scope"{named}'),)


class TooManyFailures(AccessRefused):
    """Raised in place of Unauthenticated for an address that has presented many wrong tokens."""

    code, http_status, grpc_status = "RESOURCE_EXHAUSTED", 429, 8

    def __init__(self, wait_s: int) -> None:
        super().__init__(
            f"Too many wrong tokens came from this address, retry after {wait_s} s or with a valid "
            "one",
            _TOO_MANY,
        )
        self.headers = (("Retry-After", str(wait_s)),)
