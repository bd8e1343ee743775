"""The refusals of access. None of them shows a token, or anything that a token is not good for."""

from __future__ import annotations

from zmqtriton_floor.errors import ZmqTritonError

Headers = tuple[tuple[str, str], ...]


class AccessRefused(ZmqTritonError):
    """Base of the refusals, each with headers for HTTP."""

    headers: Headers = ()


class Unauthenticated(AccessRefused):
    """Raised when there is no valid token."""

    code, http_status, grpc_status = "UNAUTHENTICATED", 401, 16

    def __init__(self, text: str, *, has_token: bool) -> None:
        super().__init__(text)
        problem = ' error="invalid_token"' if has_token else ""
        self.headers = (("WWW-Authenticate", f"Bearer{problem}"),)


class Forbidden(AccessRefused):
    """Raised when a valid token is not good for this."""

    code, http_status, grpc_status = "PERMISSION_DENIED", 403, 7

    def __init__(self, text: str, scope: str = "") -> None:
        super().__init__(text)
        named = f', scope="{scope}"' if scope else ""
        self.headers = (("WWW-Authenticate", f'Bearer error="insufficient_scope"{named}'),)


class TooManyFailures(AccessRefused):
    """Raised in place of Unauthenticated for an address that has presented many wrong tokens."""

    code, http_status, grpc_status = "RESOURCE_EXHAUSTED", 429, 8

    def __init__(self, wait_s: int) -> None:
        super().__init__(
            f"Too many wrong tokens came from this address, retry after {wait_s} s or with a valid "
            "one"
        )
        self.headers = (("Retry-After", str(wait_s)),)
