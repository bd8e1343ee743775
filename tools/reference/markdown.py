"""The forms of Markdown that the pages of the reference share."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence

#: Code, which is left alone, or a sign that would mean something.
_SIGNS = re.compile(r"(`[^`]*`)|([\[\]<*])")
#: In a cell it is written in two ways, and neither is read everywhere.
_CODE_WITH_BAR = re.compile(r"`([^`]*\|[^`]*)`")


def heading(title: str, about: str, source: str) -> Iterator[str]:
    """Return the beginning of a page, with the name of the file to edit instead."""
    yield from (f"# {title}", "", f"<!-- Written by `python -m tools.reference` from {source}. -->")
    yield from ("", about, "")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Return a table and an empty line behind it."""
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(map(cell, row))} |"
    yield ""


def cell(text: str) -> str:
    """Return a text escaped for a cell of a table, on forges and on the site."""
    line = " ".join(text.split())
    return _CODE_WITH_BAR.sub(_without_bar, line).replace("|", "\\|")


def _without_bar(match: re.Match[str]) -> str:
    return f"<code>{html.escape(match[1], quote=False).replace('|', '&#124;')}</code>"


def prose(text: str) -> str:
    """Return a text for terminals as Markdown, with its signs escaped."""
    return _SIGNS.sub(lambda match: match[1] or f"\\{match[2]}", text)


def code(text: str) -> str:
    """Return a text as Markdown code; "" stays ""."""
    return f"`{text}`" if text else ""


def block(text: str, language: str = "text") -> Iterator[str]:
    yield from (f"```{language}", text.strip("\n"), "```", "")
