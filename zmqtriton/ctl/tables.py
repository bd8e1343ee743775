"""Tables of `zmqtriton-ctl`: columns on a terminal, else one line for each row."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

_NO_TERMINAL_WIDTH = 4096
_GAP = 2
_INDENT = " " * 4
_STYLES = {"READY": "green", "FAILED": "red", "UNAVAILABLE": "red", "BACKOFF": "yellow"}


def terminal_width() -> int | None:
    """Return the width of the terminal; None without one."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table.

    If a terminal is too narrow, or a last cell has several lines, the last cells go below their
    rows.
    """
    width = terminal_width()
    if width is not None and not _fits(header, rows, width):
        _print_with_last_below(header, rows)
        return
    table = Table(box=None, pad_edge=False)
    for name in header:
        table.add_column(name, overflow="fold")
    for row in rows:
        # as Text, so that a model's reason cannot be markup
        cells = [escape_newlines(cell) for cell in row]
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in cells))
    Console(width=width or _NO_TERMINAL_WIDTH).print(table)


def _fits(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> bool:
    if any("\n" in row[-1].rstrip() for row in rows):
        return False
    return sum(_widths(header, rows)) + _GAP * (len(header) - 1) <= width


def _widths(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(header, *rows, strict=True)]


def _print_with_last_below(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = _widths(header[:-1], [row[:-1] for row in rows])
    click.echo(_line(header[:-1], widths, is_head=True))
    for row in rows:
        click.echo(_line(row[:-1], widths))
        for line in row[-1].rstrip().splitlines():
            click.echo(f"{_INDENT}{_printable(line)}".rstrip())


def _line(cells: Sequence[str], widths: Sequence[int], *, is_head: bool = False) -> str:
    padded = [_printable(c).ljust(width) for c, width in zip(cells, widths, strict=True)]
    styled = [
        click.style(text, fg=_STYLES.get(cell), bold=is_head or None)
        for cell, text in zip(cells, padded, strict=True)
    ]
    return (" " * _GAP).join(styled).rstrip()


def _printable(text: str) -> str:
    """Remove what would control a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def escape_newlines(text: str) -> str:
    """Escape line ends, as the log does."""
    return text.rstrip().replace("\n", "\\n")


def format_duration(seconds: float) -> str:
    """Return a duration in its two largest units."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"
