"""Draws how long requests wait, and how many instances there are, for docs/guides/scaling.md."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tests.bench.drawing import COLOURS, MARGIN, WIDTH, gridline, polyline, text, write
from tests.support.server import ROOT

PATH = ROOT / "docs" / "guides" / "autoscale.svg"
_HEIGHT = 420
#: Top and bottom of the two plots.
_QUEUE, _INSTANCES = (34, 220), (262, 366)
_LOWEST_MS, _HIGHEST_MS, _MAX_INSTANCES = 0.1, 100_000.0, 8

Series = tuple[str, Sequence[tuple[float, float]], Sequence[tuple[float, float]]]


def draw(runs: Sequence[Series]) -> None:
    """Write the plot of these runs: name, queue times and instances, each by the second."""
    last_s = max(at for _, queue, _ in runs for at, _ in queue)
    parts = [
        text(MARGIN, 20, "Time in the queue, 99 % of a second, ms"),
        text(MARGIN, _INSTANCES[0] - 12, "Instances"),
    ]
    for power in range(-1, 6):
        parts += gridline(_queue_y(10.0**power), f"{10.0**power:g}")
    for count in (0, 4, 8):
        parts += gridline(_instances_y(count), str(count))
    for second in range(0, int(last_s) + 1, 10):
        x = _x(second, last_s)
        parts.append(text(x, _INSTANCES[1] + 18, f"{second} s", anchor="middle"))
    for (name, queue, instances), colour in zip(runs, COLOURS, strict=False):
        parts.append(polyline([(_x(at, last_s), _queue_y(value)) for at, value in queue], colour))
        within = [(at, count) for at, count in instances if at <= last_s]
        parts.append(polyline([(_x(a, last_s), _instances_y(c)) for a, c in within], colour))
        x = MARGIN + COLOURS.index(colour) * 130
        parts.append(text(x, _HEIGHT - 8, name, colour=colour))
    write(PATH, _HEIGHT, parts)


def _x(at_s: float, last_s: float) -> float:
    return round(MARGIN + at_s / last_s * (WIDTH - 16 - MARGIN), 1)


def _queue_y(milliseconds: float) -> float:
    top, bottom = _QUEUE
    lowest, highest = math.log10(_LOWEST_MS), math.log10(_HIGHEST_MS)
    place = (math.log10(max(milliseconds, _LOWEST_MS)) - lowest) / (highest - lowest)
    return round(bottom - min(place, 1.0) * (bottom - top), 1)


def _instances_y(count: float) -> float:
    top, bottom = _INSTANCES
    return round(bottom - count / _MAX_INSTANCES * (bottom - top), 1)
