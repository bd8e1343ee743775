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
    """Return the beginning of a page, with the file to edit in its place."""
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
    """Return a text that stays in its cell, on forges and on the site."""
    line = " ".join(text.split())
    return _CODE_WITH_BAR.sub(_without_bar, line).replace("|", "\\|")


def _without_bar(match: re.Match[str]) -> str:
    return f"<code>{html.escape(match[1], quote=False).replace('|', '&#124;')}</code>"


def prose(text: str) -> str:
    """Return a text that was written for terminals, with the signs of Markdown as they are."""
    return _SIGNS.sub(lambda match: match[1] or f"\\{match[2]}", text)


def code(text: str) -> str:
    """Return it as code; nothing stays nothing."""
    return f"`{text}`" if text else ""


def block(text: str, language: str = "text") -> Iterator[str]:
    yield from (f"```{language}", text.strip("\n"), "```", "")
