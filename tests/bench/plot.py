"""Draws how the cost of a request grows, for docs/guides/performance.md."""

from __future__ import annotations

import itertools
import math
from typing import Any

from tests.bench.drawing import COLOURS, MARGIN, WIDTH, gridline, polyline, text, write
from tests.support.server import ROOT

PATH = ROOT / "docs" / "guides" / "growth.svg"
_HEIGHT = 300
_HIGHEST = 2.0  # times the cost on the smallest server


def draw(rows: list[dict[str, Any]]) -> None:
    """Write the plot of these rows: CPU per request, against the smallest size of each kind."""
    largest = math.log10(max(row["size"] for row in rows) or 10)
    parts = [text(MARGIN, 16, "CPU per request, the smallest server = 1")]
    for tenths in range(0, int(_HIGHEST * 10) + 1, 5):
        parts += gridline(_y(tenths / 10), str(tenths / 10))
    for power in range(int(largest) + 1):
        x = _x(10**power, largest)
        parts.append(text(x, _HEIGHT - 26, f"{10**power:,}", anchor="middle"))
    kinds = itertools.groupby(rows, key=lambda row: str(row["kind"]))
    for number, ((kind, group), colour) in enumerate(zip(kinds, COLOURS, strict=False)):
        own = list(group)
        costs = [(row["size"], row["cpu_us"] / own[0]["cpu_us"]) for row in own]
        parts.append(polyline([(_x(size, largest), _y(cost)) for size, cost in costs], colour))
        parts.append(text(MARGIN + number * 130, _HEIGHT - 6, kind, colour=colour))
    write(PATH, _HEIGHT, parts)


def _x(size: int, largest: float) -> float:
    return round(MARGIN + math.log10(max(size, 1)) / largest * (WIDTH - 2 * MARGIN), 1)


def _y(ratio: float) -> float:
    height = _HEIGHT - 2 * MARGIN
    return round(_HEIGHT - MARGIN - min(ratio, _HIGHEST) / _HIGHEST * height, 1)
