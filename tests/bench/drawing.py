"""The parts of which the plots of the guides are made, as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

COLOURS = ("#3b6fb6", "#c0562f", "#4d8f4a", "#8a5aa8", "#8c7a2b")
WIDTH, MARGIN = 640, 56


def write(path: Path, height: int, parts: Iterable[str]) -> None:
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    path.write_text("\n".join([*head, *parts, "</svg>", ""]), "utf-8")


def text(x: float, y: float, words: str, *, anchor: str = "start", colour: str = "black") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}">{words}</text>'


def gridline(y: float, label: str) -> list[str]:
    """Draw a horizontal line over the whole plot, with its value on the left."""
    line = f'<path d="M{MARGIN} {y}H{WIDTH - 16}" stroke="#ddd"/>'
    return [line, text(MARGIN - 6, y + 4, label, anchor="end")]


def polyline(points: Sequence[tuple[float, float]], colour: str) -> str:
    drawn = " ".join(f"{x},{y}" for x, y in points)
    return f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2"/>'
