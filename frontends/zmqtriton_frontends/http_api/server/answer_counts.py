"""Counters of the answers that this process has begun, by their status."""

from __future__ import annotations

from collections import defaultdict

by_status: defaultdict[int, int] = defaultdict(int)


def counts() -> dict[str, int]:
    return {str(status): count for status, count in by_status.items()}
