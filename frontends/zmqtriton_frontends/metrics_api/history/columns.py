"""Samples in columns: a ring of numbers for each figure, and NaN for a missing one."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence

_NONE = math.nan
#: Decimals that are shown; more are no news.
_DECIMALS = 3


class Columns:
    """The columns of one thing. All rings of a history have the same length and place."""

    def __init__(self, names: Sequence[str], length: int) -> None:
        # four bytes for a number: they are drawn
        self._columns = {name: array("f", [_NONE]) * length for name in names}

    def put(self, place: int, values: Sequence[float | None]) -> None:
        """Set the sample of this place; a value for each column."""
        for column, value in zip(self._columns.values(), values, strict=True):
            column[place] = _NONE if value is None else value

    def clear(self, place: int) -> None:
        for column in self._columns.values():
            column[place] = _NONE

    def sum(self, name: str, places: Iterable[int]) -> float:
        """Return the sum of a column; missing numbers add nothing."""
        column = self._columns[name]
        # only NaN differs from itself
        return sum(column[place] for place in places if column[place] == column[place])

    def read(self, places: Sequence[int]) -> dict[str, list[float | None]]:
        """Return the samples of these places, None where there was nothing."""
        return {
            name: [_shown(column[place]) for place in places]
            for name, column in self._columns.items()
        }


def _shown(value: float) -> float | None:
    # only NaN differs from itself
    return round(value, _DECIMALS) if value == value else None
