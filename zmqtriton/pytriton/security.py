"""Protection of the endpoints of the server that a script starts."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field

from zmqtriton.options import CATEGORIES
from zmqtriton.pytriton.exceptions import PyTritonValidationError

VALID_TRITON_ENDPOINTS = set(CATEGORIES)
DEFAULT_PROTECTED_ENDPOINTS = [
    "shared-memory",
    "model-repository",
    "statistics",
    "trace",
    "logging",
]


@dataclass
class TritonSecurityConfig:
    """Endpoints that answer only to requests with a token."""

    #: By default a new one, if there are endpoints to protect.
    access_token: str | None = field(default=None, repr=False)
    #: By default DEFAULT_PROTECTED_ENDPOINTS; an empty list for none.
    restricted_endpoints: list[str] | None = None

    def __post_init__(self) -> None:
        if self.restricted_endpoints is None:
            self.restricted_endpoints = list(DEFAULT_PROTECTED_ENDPOINTS)
        _check_names(self.restricted_endpoints)
        if self.access_token is None and self.restricted_endpoints:
            self.access_token = secrets.token_urlsafe(32)


def _check_names(endpoints: Iterable[str]) -> None:
    unknown = set(endpoints) - VALID_TRITON_ENDPOINTS
    if unknown:
        raise PyTritonValidationError(
            f"Invalid endpoint names: {', '.join(sorted(unknown))}. "
            f"Valid endpoints are: {', '.join(sorted(VALID_TRITON_ENDPOINTS))}"
        )
