"""Measures how soon the chosen pair follows a change of load, on a simulated clock.

    python -m tests.bench.following [--save]

Each load changes once. It has been followed when, from then on, the requests of each second need at
most a quarter more time than with the fixed pair that is best for the new load, and half of a
millisecond. Prints the seconds after the change; test_choosing.py bounds them.
With --save, the picture of a choice that follows a load is drawn for the guide.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.bench.drawing import COLOURS, MARGIN, WIDTH, gridline, polyline, text, write
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
from tests.support.needs import ROOT

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


# -------------------------------------------------------------------------- picture

_PICTURE = ROOT / "docs" / "guides" / "following.svg"
#: Requests in a second from each second on.
_DAY = ((0, 60), (6, 600), (14, 60), (20, 0))
_TOP, _HEIGHT, _GAP = 30, 70, 40


def draw(target: str) -> None:
    """Draw the choices for a load that grows and shrinks."""
    dice, end = random.Random(3), _DAY[-1][0]
    times = [
        begin + at
        for (begin, rate), (until, _) in pairwise(_DAY)
        for at in poisson(dice, rate, until - begin)
    ]
    run = LoadRun(config_of(0, MOST, target), LAWS["affine"], 1, skipped=0)
    choices = [(at / SECOND, delay / MS, size) for at, delay, size in run.open(times).choices]
    choices.insert(0, (0.0, 0.0, MOST))
    series: tuple[tuple[str, Sequence[tuple[float, float]], int], ...] = (
        ("Requests in a second", [*_DAY[:-1]], 600),
        ("Delay in ms", [(at, delay) for at, delay, _ in choices], 100),
        ("Maximum rows of a batch", [(at, size) for at, _, size in choices], MOST),
    )
    parts: list[str] = []
    for number, (words, steps, top) in enumerate(series):
        bottom = _TOP + number * (_HEIGHT + _GAP) + _HEIGHT
        parts.append(text(MARGIN, bottom - _HEIGHT - 10, words))
        parts += gridline(bottom, "0") + gridline(bottom - _HEIGHT, str(top))
        corners = [(0.0, steps[0][1])]
        for at, value in [*steps[1:], (end, steps[-1][1])]:
            corners += [(at, corners[-1][1]), (at, value)]
        scale = (WIDTH - 16 - MARGIN) / end
        points = [
            (round(MARGIN + at * scale, 1), round(bottom - min(value, top) / top * _HEIGHT, 1))
            for at, value in corners
            if at <= end
        ]
        parts.append(polyline(points, COLOURS[number]))
    for second in range(0, end + 1, 4):
        x = round(MARGIN + second * (WIDTH - 16 - MARGIN) / end, 1)
        parts.append(text(x, bottom + 16, f"{second} s", anchor="middle"))
    write(_PICTURE, bottom + 26, parts)


def main() -> None:
    if sys.argv[1:] == ["--save"]:
        draw("p99 100 ms")
    print(f"{'Change':32} {'Model':8} Seconds until it is followed, by seed")
    for (name, law), seconds in table(("flat", "affine", "step"), "abcdef").items():
        print(f"{name:32} {law:8} {' '.join(map(str, seconds))}")


if __name__ == "__main__":
    main()
