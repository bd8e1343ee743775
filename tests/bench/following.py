"""How soon the chosen pair follows a change of load, on a simulated clock.

    python -m tests.bench.following

Each load changes once. It has been followed when, from then on, the requests of each second need at
most a quarter more time than with the fixed pair that is best for the new load, and half of a
millisecond. Prints the seconds after the change; test_choosing.py bounds them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.broker.scheduling.batch_loads import (
    LAWS,
    MOST,
    MS,
    SECOND,
    LoadRun,
    Result,
    config_of,
    poisson,
)

#: The second of the change, and the seconds that are looked at after it.
CHANGE_S, AFTER_S = 4, 8
_SETTLED_S = 4
_MORE, _LEAST_MS = 1.25, 0.5
_RATE = 60
_PAIRS = [(delay, MOST) for delay in (0, 2000, 6000, 12_000)]
_CLIENTS = 32


class Change(NamedTuple):
    """A load that changes once."""

    before: int
    after: int
    slow_from: float = 1e9
    clients: int = 0

    def run(self, pair: tuple[int, int], law: str, seed: str, target: str = "") -> Result:
        dice = random.Random(seed)
        later = [CHANGE_S + at for at in poisson(dice, self.after, AFTER_S)]
        run = LoadRun(config_of(*pair, target), LAWS[law], 1, slow_from=self.slow_from)
        if self.clients:
            return run.closed(self.clients, CHANGE_S, later)
        return run.open([*poisson(dice, self.before, CHANGE_S), *later])


CHANGES = {
    "ten times as many": Change(_RATE, 10 * _RATE),
    "a tenth": Change(10 * _RATE, _RATE),
    "clients that wait, then others": Change(0, 4 * _RATE, clients=_CLIENTS),
    "executions twice as long": Change(4 * _RATE, 4 * _RATE, slow_from=CHANGE_S),
}


def _means(result: Result) -> list[float]:
    """Return the mean time in ms of the requests of each second after the change."""
    groups: list[list[int]] = [[] for _ in range(AFTER_S)]
    for at, took in zip(result.arrived, result.latencies, strict=True):
        second = at // SECOND - CHANGE_S
        if second >= 0:
            groups[second].append(took)
    return [sum(group) / max(1, len(group)) / MS for group in groups]


def seconds_until_followed(change: Change, law: str, seed: str) -> int:
    fixed = (_means(change.run(pair, law, seed)) for pair in _PAIRS)
    best = min(fixed, key=lambda means: sum(means[_SETTLED_S:]))
    own = _means(change.run((0, MOST), law, seed, "latency"))
    bad = [n for n in range(AFTER_S) if own[n] > _MORE * best[n] + _LEAST_MS]
    return bad[-1] + 1 if bad else 0


def table(laws: Iterable[str], seeds: Sequence[str]) -> dict[tuple[str, str], list[int]]:
    return {
        (name, law): [seconds_until_followed(change, law, seed) for seed in seeds]
        for name, change in CHANGES.items()
        for law in laws
    }


if __name__ == "__main__":
    print(f"{'Change':32} {'Model':8} Seconds until it is followed, by seed")
    for (name, law), seconds in table(("flat", "affine", "step"), "abcdef").items():
        print(f"{name:32} {law:8} {' '.join(map(str, seconds))}")
