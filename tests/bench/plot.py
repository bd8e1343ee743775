"""Draws how the cost of a request grows, for docs/guides/performance.md."""

from __future__ import annotations

import itertools
import math
from typing import Any

from tests.support.server import ROOT

PATH = ROOT / "docs" / "guides" / "growth.svg"
_WIDTH, _HEIGHT, _MARGIN = 640, 300, 48
_HIGHEST = 2.0  # times the cost on the smallest server
_COLOURS = ("#3b6fb6", "#c0562f", "#4d8f4a", "#8a5aa8")


def draw(rows: list[dict[str, Any]]) -> None:
    """Write the plot of these rows: CPU per request, against the smallest size of each kind."""
    largest = math.log10(max(row["size"] for row in rows) or 10)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for tenths in range(0, int(_HIGHEST * 10) + 1, 5):
        y = _y(tenths / 10)
        parts.append(f'<path d="M{_MARGIN} {y}H{_WIDTH - _MARGIN}" stroke="#ddd"/>')
        parts.append(f'<text x="{_MARGIN - 6}" y="{y + 4}" text-anchor="end">{tenths / 10}</text>')
    for power in range(int(largest) + 1):
        x = _x(10**power, largest)
        parts.append(f'<text x="{x}" y="{_HEIGHT - 26}" text-anchor="middle">{10**power:,}</text>')
    kinds = itertools.groupby(rows, key=lambda row: str(row["kind"]))
    for number, (kind, group) in enumerate(kinds):
        own, colour = list(group), _COLOURS[number % len(_COLOURS)]
        points = " ".join(
            f"{_x(row['size'], largest)},{_y(row['cpu_us'] / own[0]['cpu_us'])}" for row in own
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        x = _MARGIN + number * 130
        parts.append(f'<text x="{x}" y="{_HEIGHT - 6}" fill="{colour}">{kind}</text>')
    parts.append(f'<text x="{_MARGIN}" y="16">CPU per request, the smallest server = 1</text>')
    PATH.write_text("\n".join([*parts, "</svg>", ""]), "utf-8")


def _x(size: int, largest: float) -> float:
    return round(_MARGIN + math.log10(max(size, 1)) / largest * (_WIDTH - 2 * _MARGIN), 1)


def _y(ratio: float) -> float:
    height = _HEIGHT - 2 * _MARGIN
    return round(_HEIGHT - _MARGIN - min(ratio, _HIGHEST) / _HIGHEST * height, 1)
