"""The plan of a world."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_KIB = 1 << 10
#: Sizes of inputs in bytes, and how often each is drawn.
SIZES: Mapping[int, int] = {
    _KIB: 4,
    70 * _KIB: 5,
    300 * _KIB: 5,
    _KIB * _KIB: 2,
    3 * _KIB * _KIB: 1,
}


class Plan(NamedTuple):
    """The choices for one server, its programs and its clients."""

    seed: int
    number: int
    calls: int
    features: Sequence[str]
    models: int = 8
    clients: int = 6
    #: On the clock of time.monotonic().
    deadline_s: float = float("inf")
    #: Bytes of an input at most; 0 if each size may be drawn.
    largest: int = 0
    #: Looks at each request at arrays that are kept in a place, beside those whose time has come.
    looks: int = 1

    @property
    def name(self) -> str:
        return f"{self.seed}/{self.number}"

    @property
    def sizes(self) -> Mapping[int, int]:
        largest = self.largest or max(SIZES)
        return {size: weight for size, weight in SIZES.items() if size <= largest}

    def chance(self, of: object) -> random.Random:
        return random.Random(f"{self.name} {of}")
