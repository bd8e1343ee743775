"""Counts and times the responses of a decoupled model by their index, for the broker's statistics.

Streams add to the counts, whichever way their responses go; connection.py sends the sums along with
results, so a response costs two additions and no message. The state lock is held for both.
"""

from __future__ import annotations

import json
import time
from typing import Dict, List

#: Further responses of one stream are not counted.
MAX_INDEXES = 1024
#: While streams are open more can be added to what was counted.
_EVERY_NS = 500_000_000

#: Positions in a row: at each, a kind of response has its count, then its time in the model, then
#: its time of sending.
SUCCESS, FAIL, EMPTY, CANCEL = 0, 3, 6, 9
_FIELDS = 12


class ResponseCounter:
    """The counts that were not sent to the broker yet."""

    def __init__(self) -> None:
        self._rows: Dict[int, List[int]] = {}
        self._next_ns = 0

    def add(self, index: int, kind: int, infer_ns: int, output_ns: int) -> None:
        row = self._rows.get(index)
        if row is None:
            if index >= MAX_INDEXES:
                return
            row = self._rows[index] = [0] * _FIELDS
        row[kind] += 1
        row[kind + 1] += infer_ns
        row[kind + 2] += output_ns

    def take(self, *, is_last: bool) -> str:
        """Return the counts to send now, as JSON, or "".

        Sends them if nothing can be added any more, or if they were sent a while ago.
        """
        if not self._rows:
            return ""
        now_ns = time.monotonic_ns()
        if now_ns < self._next_ns and not is_last:
            return ""
        self._next_ns = now_ns + _EVERY_NS
        rows, self._rows = self._rows, {}
        return json.dumps([[index, *row] for index, row in rows.items()])
