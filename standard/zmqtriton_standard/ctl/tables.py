"""Tables of `zmqtriton-ctl`: columns on a terminal, else one line for each row."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

import click
from rich.cells import cell_len, set_cell_size

from zmqtriton.sdk.wire import logs

_GAP = 2
_INDENT = " " * 4
_LEAST_FIRST = 16
#: The units of a duration, in seconds, each with the next one.
_STYLES = {"READY": "green", "FAILED": "red", "UNAVAILABLE": "red", "BACKOFF": "yellow"}


def terminal_width() -> int | None:
    """Return the width of the terminal; None without one."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, has_figures: bool = False
) -> None:
    """Print a table: columns on a terminal; else tabs between the cells of a row.

    If a terminal is too narrow, or a last cell has several lines, last cells are printed below
    their rows; in a table that `has_figures`, together on one line.
    """
    width = terminal_width()
    if width is None:
        for row in (header, *rows):
            # a text of several lines is one here
            click.echo("\t".join(logs.escape(" ".join(cell.split())) for cell in row).rstrip("\t"))
        return
    count = _fitting_columns(header, rows, width)
    widths = _widths(header, rows, width)[:count]
    click.echo(_line(header[:count], widths, is_head=True))
    for row in rows:
        click.echo(_line(row[:count], widths))
        names = header[count:] if len(header) - count > 1 or has_figures else [""]
        below = [*zip(names, row[count:], strict=False)]
        if has_figures and below:
            below = [("", "  ".join(f"{name} {cell}" for name, cell in below))]
        for name, cell in below:
            _print_below(name, cell)


def _fitting_columns(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> int:
    """Return the number of columns that fit into `width` next to each other, at least 1."""
    widths = _widths(header, rows, width)
    has_lines = any("\n" in row[-1].rstrip() for row in rows)
    count = len(header) - 1 if has_lines else len(header)
    while count > 1 and sum(widths[:count]) + _GAP * (count - 1) > width:
        count -= 1
    return count


def _widths(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the widths of the columns; the first takes half of the terminal at most."""
    columns = zip(header, *rows, strict=True)
    first, *others = [max(cell_len(logs.escape(cell)) for cell in column) for column in columns]
    return [min(first, max(_LEAST_FIRST, width // 2)), *others]


def _print_below(name: str, cell: str) -> None:
    """Print a cell below its row, with its column's name if there are several such cells."""
    lines = [logs.escape(line) for line in cell.rstrip().splitlines()]
    if name and lines:
        lines[0] = f"{name}: {lines[0]}"
    for line in lines:
        click.echo(f"{_INDENT}{line}".rstrip())


def _line(cells: Sequence[str], widths: Sequence[int], *, is_head: bool = False) -> str:
    padded = [
        set_cell_size(shorten(logs.escape(cell), width), width)
        for cell, width in zip(cells, widths, strict=True)
    ]
    styled = [
        click.style(text, fg=_STYLES.get(cell), bold=is_head or None)
        for cell, text in zip(cells, padded, strict=True)
    ]
    return (" " * _GAP).join(styled).rstrip()


def shorten(text: str, width: int) -> str:
    """Return a text of at most this width; of a longer one, "…" replaces the middle."""
    if cell_len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{set_cell_size(text, width - 1 - end)}…{set_cell_size(text[::-1], end)[::-1]}"
