"""Draws the plots of docs/guides/performance.md: growth, and rate and latency of a model."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from tests.bench.drawing import COLOURS, MARGIN, WIDTH, gridline, polyline, text, write
from tests.support.server import ROOT

GUIDES = ROOT / "docs" / "guides"
_GROWTH_HEIGHT = 300
_HIGHEST = 2.0  # times the cost on the smallest server


def draw_growth(rows: list[dict[str, Any]]) -> None:
    """Write the plot of these rows: CPU per request, against the smallest size of each kind."""
    largest = math.log10(max(row["size"] for row in rows) or 10)
    parts = [text(MARGIN, 16, "CPU per request, the smallest server = 1")]
    for tenths in range(0, int(_HIGHEST * 10) + 1, 5):
        parts += gridline(_ratio_y(tenths / 10), str(tenths / 10))
    for power in range(int(largest) + 1):
        x = _size_x(10**power, largest)
        parts.append(text(x, _GROWTH_HEIGHT - 26, f"{10**power:,}", anchor="middle"))
    kinds = itertools.groupby(rows, key=lambda row: str(row["kind"]))
    for number, ((kind, group), colour) in enumerate(zip(kinds, COLOURS, strict=False)):
        own = list(group)
        costs = [(row["size"], row["cpu_us"] / own[0]["cpu_us"]) for row in own]
        parts.append(
            polyline([(_size_x(size, largest), _ratio_y(cost)) for size, cost in costs], colour)
        )
        parts.append(text(MARGIN + number * 130, _GROWTH_HEIGHT - 6, kind, colour=colour))
    write(GUIDES / "growth.svg", _GROWTH_HEIGHT, parts)


def _size_x(size: int, largest: float) -> float:
    return round(MARGIN + math.log10(max(size, 1)) / largest * (WIDTH - 2 * MARGIN), 1)


def _ratio_y(ratio: float) -> float:
    height = _GROWTH_HEIGHT - 2 * MARGIN
    return round(_GROWTH_HEIGHT - MARGIN - min(ratio, _HIGHEST) / _HIGHEST * height, 1)


# ---------------------------------------------------------------------------- tuning

_TUNING_HEIGHT = 460
#: Top and bottom of the two plots, and the ends of their scales, which are logarithmic.
_RATE, _RATES = (34, 200), (50.0, 2000.0)
_LATENCY, _LATENCIES_MS = (244, 400), (5.0, 1000.0)
_RATE_LINES, _LATENCY_LINES_MS = (50, 100, 200, 500, 1000, 2000), (5, 10, 20, 50, 100, 200, 500)
_LEGEND_STEP = 116

#: A setting, and by the number of clients: requests per second and the median latency in ms.
Series = tuple[str, Sequence[tuple[int, float, float]]]


def draw_tuning(series: Sequence[Series]) -> None:
    clients = sorted({count for _, points in series for count, _, _ in points})
    parts = [
        text(MARGIN, 20, "Requests per second"),
        text(MARGIN, _LATENCY[0] - 12, "Latency, median, ms"),
    ]
    for rate in _RATE_LINES:
        parts += gridline(_y(rate, _RATE, _RATES), str(rate))
    for milliseconds in _LATENCY_LINES_MS:
        parts += gridline(_y(milliseconds, _LATENCY, _LATENCIES_MS), str(milliseconds))
    for count in clients:
        x = _x(count, clients[-1])
        parts.append(text(x, _LATENCY[1] + 18, str(count), anchor="middle"))
    parts.append(text(WIDTH - 16, _LATENCY[1] + 34, "clients", anchor="end"))
    for number, ((name, points), colour) in enumerate(zip(series, COLOURS, strict=False)):
        rates = [(_x(c, clients[-1]), _y(rate, _RATE, _RATES)) for c, rate, _ in points]
        waits = [(_x(c, clients[-1]), _y(ms, _LATENCY, _LATENCIES_MS)) for c, _, ms in points]
        parts += [polyline(rates, colour), polyline(waits, colour)]
        x = MARGIN + number * _LEGEND_STEP
        parts.append(text(x, _TUNING_HEIGHT - 8, name, colour=colour))
    write(GUIDES / "tuning.svg", _TUNING_HEIGHT, parts)


def _x(clients: int, max_clients: int) -> float:
    place = math.log(clients) / math.log(max_clients)
    return round(MARGIN + 12 + place * (WIDTH - 40 - MARGIN), 1)


def _y(value: float, ends: tuple[int, int], scale: tuple[float, float]) -> float:
    (top, bottom), (lowest, highest) = ends, scale
    place = math.log(min(max(value, lowest), highest) / lowest) / math.log(highest / lowest)
    return round(bottom - place * (bottom - top), 1)
