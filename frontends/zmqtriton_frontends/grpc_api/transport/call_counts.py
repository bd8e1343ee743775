"""Counters of the calls that have ended in this process, by the status that their clients get."""

from __future__ import annotations

#: The names of gRPC's statuses, each at its number.
NAMES = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
OK, CANCELLED = NAMES.index("OK"), NAMES.index("CANCELLED")

#: A list: whoever ends a call adds to it in place, which is no call of a function.
by_status = [0] * len(NAMES)


def counts() -> dict[str, int]:
    return {name: count for name, count in zip(NAMES, by_status, strict=True) if count}
