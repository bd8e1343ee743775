"""Tables of `zmqtriton-ctl`: for eyes where there is a terminal, else one line for each row."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

_NO_TERMINAL_WIDTH = 4096
_STYLES = {"READY": "green", "FAILED": "red", "UNAVAILABLE": "red", "BACKOFF": "yellow"}


def show(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    is_terminal = sys.stdout.isatty()
    table = Table(box=None, pad_edge=False)
    for name in header:
        table.add_column(name, overflow="fold")
    for row in rows:
        cells = [cell.rstrip() if is_terminal else on_one_line(cell) for cell in row]
        # As text, so that a model's reason cannot be markup.
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in cells))
    Console(width=None if is_terminal else _NO_TERMINAL_WIDTH).print(table)


def on_one_line(text: str) -> str:
    """As the log has it."""
    return text.rstrip().replace("\n", "\\n")


def duration(seconds: float) -> str:
    """The two largest units that count."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"
