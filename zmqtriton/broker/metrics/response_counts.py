"""Counters of each response of decoupled models: `response_stats` of the statistics.

For the first response of a request, the second and so on: how many there were and how long each
took. Stubs count them, since most responses do not pass through the broker.
"""

from __future__ import annotations

import json

from zmqtriton_floor.errors import ProtocolError

#: Where the fields of each kind begin: its count, the time to compute it, the time to send it.
_SUCCESS, _FAIL, _EMPTY, _CANCEL = 0, 3, 6, 9
_FIELDS = 12
#: The stubs' own limit; a larger index is malformed.
_MAX_INDEXES = 1024


class ResponseCounts:
    """The response counters of one generation."""

    def __init__(self) -> None:
        self._rows: dict[int, list[int]] = {}

    def add(self, text: str) -> None:
        """Add what a stub has counted since its last message. Raises ProtocolError."""
        try:
            rows = json.loads(text)
            if any(type(x) is not int or x < 0 for row in rows for x in row):
                raise ValueError
            for index, *counts in rows:
                if len(counts) != _FIELDS or index >= _MAX_INDEXES:
                    raise ValueError
                sums = self._rows.get(index)
                self._rows[index] = (
                    counts if sums is None else [a + b for a, b in zip(sums, counts, strict=True)]
                )
        except (ValueError, TypeError, RecursionError):
            raise ProtocolError("Results: malformed response counts") from None

    def as_dict(self) -> dict[str, dict[str, dict[str, int]]]:
        """Return the counters by index, as the protocol has them."""
        return {str(index): _describe(row) for index, row in sorted(self._rows.items())}


def _describe(row: list[int]) -> dict[str, dict[str, int]]:
    answered = row[_SUCCESS] + row[_FAIL]
    durations: dict[str, tuple[int, int]] = {
        "compute_infer": (answered, row[_SUCCESS + 1] + row[_FAIL + 1]),
        "compute_output": (answered, row[_SUCCESS + 2] + row[_FAIL + 2]),
    }
    kinds = {"success": _SUCCESS, "fail": _FAIL, "empty_response": _EMPTY, "cancel": _CANCEL}
    for name, place in kinds.items():
        durations[name] = row[place], row[place + 1] + row[place + 2]
    return {name: {"count": count, "ns": ns} for name, (count, ns) in durations.items()}
