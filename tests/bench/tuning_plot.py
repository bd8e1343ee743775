"""Draws rate and latency by the number of clients, for docs/guides/performance.md."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tests.bench.drawing import COLOURS, MARGIN, WIDTH, gridline, polyline, text, write
from tests.support.server import ROOT

PATH = ROOT / "docs" / "guides" / "tuning.svg"
_HEIGHT = 460
#: Top and bottom of the two plots, and the ends of their scales, which are logarithmic.
_RATE, _RATES = (34, 200), (50.0, 2000.0)
_LATENCY, _LATENCIES_MS = (244, 400), (5.0, 1000.0)
_RATE_LINES, _LATENCY_LINES_MS = (50, 100, 200, 500, 1000, 2000), (5, 10, 20, 50, 100, 200, 500)
_LEGEND_STEP = 116

#: A setting, and by the number of clients: requests per second and the median latency in ms.
Series = tuple[str, Sequence[tuple[int, float, float]]]


def draw(series: Sequence[Series]) -> None:
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
        parts.append(text(x, _HEIGHT - 8, name, colour=colour))
    write(PATH, _HEIGHT, parts)


def _x(clients: int, max_clients: int) -> float:
    place = math.log(clients) / math.log(max_clients)
    return round(MARGIN + 12 + place * (WIDTH - 40 - MARGIN), 1)


def _y(value: float, ends: tuple[int, int], scale: tuple[float, float]) -> float:
    (top, bottom), (lowest, highest) = ends, scale
    place = math.log(min(max(value, lowest), highest) / lowest) / math.log(highest / lowest)
    return round(bottom - place * (bottom - top), 1)
