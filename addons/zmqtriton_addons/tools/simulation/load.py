"""The simulated load: when requests arrive, and how long a model executes them.

A seed decides everything, so that two settings meet the same requests.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MS = 1_000_000
SECOND = 1_000_000_000


@dataclass(frozen=True)
class Cost:
    """The duration of one execute(): a constant part, and one for each inference."""

    base_ms: float
    each_ms: float = 0.0
    #: The standard deviation, as a share of the whole.
    spread: float = 0.0

    def execution_ns(self, inferences: int, chance: random.Random) -> int:
        whole = self.base_ms + self.each_ms * inferences
        if self.spread:
            whole *= max(0.0, chance.gauss(1.0, self.spread))
        return max(1, round(whole * MS))


def fit_cost(batches: Sequence[tuple[int, int, int]], spread: float = 0.0) -> Cost:
    """Fit a line through measurements: (batch size, executions, nanoseconds in all)."""
    weight = sum(count for _, count, _ in batches)
    if not weight:
        raise ValueError("the statistics contain no executions to learn from")
    sizes = sum(size * count for size, count, _ in batches) / weight
    times = sum(total for _, _, total in batches) / weight
    variance = sum(count * (size - sizes) ** 2 for size, count, _ in batches)
    together = sum((size - sizes) * (total - times * count) for size, count, total in batches)
    each = max(0.0, together / variance) if variance else 0.0
    base = max(0.0, times - each * sizes)
    return Cost(base / MS, each / MS, spread)


@dataclass(frozen=True)
class Arrival:
    """A request: when it comes, and its position in its sequence."""

    at_ns: int
    batch: int = 1
    #: 0: of no sequence.
    sequence: int = 0
    is_first: bool = False
    is_last: bool = False


@dataclass(frozen=True)
class Pattern:
    """An open load: requests come whether or not earlier ones are answered."""

    rate: float
    requests: int
    #: even, poisson, or bursts of a given size
    kind: str = "poisson"
    burst: int = 1
    batch: int = 1

    def arrivals(self, chance: random.Random) -> Iterator[Arrival]:
        at_ns = 0.0
        gap_ns = SECOND / self.rate
        for number in range(self.requests):
            yield Arrival(round(at_ns), self.batch)
            if self.kind == "poisson":
                at_ns += chance.expovariate(1.0) * gap_ns
            elif (number + 1) % self.burst == 0:
                at_ns += gap_ns * self.burst


class Clients:
    """A closed load: each client sends again when it has its answer."""

    def __init__(self, number: int, requests: int, batch: int = 1, length: int = 0) -> None:
        """`length` is the number of requests in a sequence; 0: there are no sequences."""
        self.number = number
        self._left = requests
        self._batch = batch
        self._length = length
        self._sequences = itertools.count(1)

    def requests(self) -> Iterator[Arrival]:
        """Iterate over the requests of one client while there are any left to send."""
        while self._left > 0:
            sequence = next(self._sequences) if self._length else 0
            last = max(1, self._length) - 1
            for number in range(last + 1):
                self._left -= 1
                yield Arrival(0, self._batch, sequence, number == 0, number == last)


def from_lines(lines: Iterator[str]) -> list[Arrival]:
    """Parse recorded arrivals: a line each, seconds and perhaps the batch size.

    Raises ValueError, which names the line.
    """
    arrivals = []
    for number, line in enumerate(lines, 1):
        words = line.replace(",", " ").split()
        if not words or words[0].startswith("#"):
            continue
        try:
            batch = int(words[1]) if len(words) > 1 else 1
            at_s = float(words[0])
        except ValueError:
            raise ValueError(
                f"line {number}: '{line.strip()}' does not begin with a time in seconds"
            ) from None
        if batch < 1 or not 0 <= at_s < 1e9:
            raise ValueError(f"line {number}: '{line.strip()}' is not possible")
        arrivals.append(Arrival(round(at_s * SECOND), batch))
    return sorted(arrivals, key=lambda arrival: arrival.at_ns)
