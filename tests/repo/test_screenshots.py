"""The pictures of README and guides, which `python -m tools.screenshots` makes."""

from __future__ import annotations

import html
import re

import pytest

from tools.screenshots import COLUMNS, GUIDES, PICTURES, svg_of
from zmqtriton_addons.ctl.statistics import _HEADER

TOP = GUIDES / "top.svg"


@pytest.mark.parametrize("file", [TOP.name, *(picture.file for picture in PICTURES)])
def test_a_picture_is_small(file: str) -> None:
    assert 1000 < (GUIDES / file).stat().st_size < 150_000


def test_the_picture_of_top_has_the_columns_of_top() -> None:
    words = _words(TOP.read_text("utf-8"))

    assert "q: quit" in words
    assert re.search(" +".join(_HEADER), words)


def test_a_terminal_is_drawn_with_its_words_and_colours_and_loads_nothing() -> None:
    svg = svg_of(f"\x1b[1mModel\x1b[0m\r\n\x1b[31m{'x' * COLUMNS}\x1b[0m  \n", "a <title>")

    assert ["a <title>", "Model", "x" * COLUMNS] == _words(svg).split("\n")
    assert re.search(r"font-weight: bold", svg)
    assert [] == re.findall(r"https?://(?!www\.w3\.org|www\.textualize\.io)|@import|url\(h", svg)


def _words(svg: str) -> str:
    """The texts of a drawing, line by line."""
    lines: dict[str, list[str]] = {}
    for y, text in re.findall(r'<text[^>]* y="([\d.]+)"[^>]*>([^<]*)</text>', svg):
        lines.setdefault(y, []).append(html.unescape(text).replace("\xa0", " "))
    return "\n".join(" ".join(line).strip() for line in lines.values())
