"""Draws how long requests wait, and how many instances there are, for docs/guides/scaling.md."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tests.support.server import ROOT

PATH = ROOT / "docs" / "guides" / "autoscale.svg"
_WIDTH, _HEIGHT, _MARGIN = 640, 420, 56
_COLOURS = ("#3b6fb6", "#c0562f", "#4d8f4a")
#: Top and bottom of the two plots.
_QUEUE, _INSTANCES = (34, 220), (262, 366)
_LOWEST_MS, _HIGHEST_MS, _MOST_INSTANCES = 0.1, 100_000.0, 8

Series = tuple[str, Sequence[tuple[float, float]], Sequence[tuple[float, float]]]


def draw(runs: Sequence[Series]) -> None:
    """Write the plot of these runs: name, queue times and instances, each by the second."""
    last_s = max(at for _, queue, _ in runs for at, _ in queue)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_MARGIN}" y="20">Time in the queue, 99 % of a second, ms</text>',
        f'<text x="{_MARGIN}" y="{_INSTANCES[0] - 12}">Instances</text>',
    ]
    for power in range(-1, 6):
        parts += _gridline(_queue_y(10.0**power), f"{10.0**power:g}")
    for count in (0, 4, 8):
        parts += _gridline(_instances_y(count), str(count))
    for second in range(0, int(last_s) + 1, 10):
        x = _x(second, last_s)
        parts.append(
            f'<text x="{x}" y="{_INSTANCES[1] + 18}" text-anchor="middle">{second} s</text>'
        )
    for number, (name, queue, instances) in enumerate(runs):
        colour = _COLOURS[number]
        parts.append(_line([(_x(at, last_s), _queue_y(value)) for at, value in queue], colour))
        within = [(at, count) for at, count in instances if at <= last_s]
        parts.append(_line([(_x(a, last_s), _instances_y(c)) for a, c in within], colour))
        x = _MARGIN + number * 130
        parts.append(f'<text x="{x}" y="{_HEIGHT - 8}" fill="{colour}">{name}</text>')
    PATH.write_text("\n".join([*parts, "</svg>", ""]), "utf-8")


def _gridline(y: float, label: str) -> list[str]:
    return [
        f'<path d="M{_MARGIN} {y}H{_WIDTH - 16}" stroke="#ddd"/>',
        f'<text x="{_MARGIN - 6}" y="{y + 4}" text-anchor="end">{label}</text>',
    ]


def _line(points: Sequence[tuple[float, float]], colour: str) -> str:
    drawn = " ".join(f"{x},{y}" for x, y in points)
    return f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2"/>'


def _x(at_s: float, last_s: float) -> float:
    return round(_MARGIN + at_s / last_s * (_WIDTH - 16 - _MARGIN), 1)


def _queue_y(milliseconds: float) -> float:
    top, bottom = _QUEUE
    lowest, highest = math.log10(_LOWEST_MS), math.log10(_HIGHEST_MS)
    place = (math.log10(max(milliseconds, _LOWEST_MS)) - lowest) / (highest - lowest)
    return round(bottom - min(place, 1.0) * (bottom - top), 1)


def _instances_y(count: float) -> float:
    top, bottom = _INSTANCES
    return round(bottom - count / _MOST_INSTANCES * (bottom - top), 1)
