"""How often a decoupled model gave its first response, its second one, and so on, and how long each
took: `response_stats` of the statistics. Stubs count, since most responses do not come by here.
"""

from __future__ import annotations

import json

from zmqtriton_floor.errors import ProtocolError

#: Of each kind: how often, how long the model took, and how long until it had left.
_SUCCESS, _FAIL, _EMPTY, _CANCEL = 0, 3, 6, 9
_FIELDS = 12
#: As in the stub: one that says more makes no sense.
_MOST_INDEXES = 1024


class ResponseCounts:
    """Of one generation."""

    def __init__(self) -> None:
        self._rows: dict[int, list[int]] = {}

    def add(self, text: str) -> None:
        """What a stub has counted since it last told; raises ProtocolError."""
        try:
            told = json.loads(text)
            if any(type(x) is not int or x < 0 for row in told for x in row):
                raise ValueError
            for index, *counts in told:
                if len(counts) != _FIELDS or index >= _MOST_INDEXES:
                    raise ValueError
                known = self._rows.get(index)
                self._rows[index] = (
                    counts if known is None else [a + b for a, b in zip(known, counts, strict=True)]
                )
        except (ValueError, TypeError, RecursionError):
            raise ProtocolError("Results: malformed response counts") from None

    def as_dict(self) -> dict[str, dict[str, dict[str, int]]]:
        """By index, as the protocol has it."""
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
