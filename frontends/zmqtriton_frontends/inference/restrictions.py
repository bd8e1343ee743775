"""The categories of requests that need a key, set by the operator, for both protocols.

Applied while the tables of HTTP and gRPC are built. Never shows, logs or returns a key.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from typing import Any


class RequiredHeader:
    """A header that a request must have exactly once, with exactly this value."""

    __slots__ = ("_value", "header", "name")

    def __init__(self, header: str, value: str) -> None:
        #: Name of the header as the operator wrote it, and as it arrives.
        self.header = header
        self.name = header.lower()
        self._value = value.encode()

    def why_not(self, values: Sequence[bytes]) -> str:
        """Return a sentence about values that are not admitted, to follow Triton's text."""
        if not values:
            return ". The request does not have it"
        return ". It has a wrong value" if len(values) == 1 else ". The request has it twice"

    def admits(self, values: Sequence[bytes]) -> bool:
        """True if these are the values of the right header; every wrong one takes the same time."""
        return len(values) == 1 and hmac.compare_digest(values[0], self._value)


def by_category(groups: Iterable[Any]) -> dict[str, RequiredHeader]:
    """Read a Bootstrap's settings: (categories, header, value) of each group."""
    return {
        category: RequiredHeader(header, value)
        for categories, header, value in groups
        for category in categories
    }
