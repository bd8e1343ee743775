"""The table of machines as docs/reliability.md has it."""

from __future__ import annotations

import re

from tests.conftest import ROOT
from tests.faults.machines.machine import Machine
from tests.faults.machines.table import MACHINES

PATH = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- generated: make machines -->\n", "<!-- end -->\n"


def text() -> str:
    """Return the page with the table as it is to be."""
    rows = "".join(map(_row, MACHINES.values()))
    table = f"\n| Machine | The server |\n|---|---|\n{rows}\n"
    written = PATH.read_text("utf-8")
    pattern = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    return pattern.sub(lambda match: f"{BEGIN}{table}{END}", written)


def write() -> None:
    PATH.write_text(text(), "utf-8")


def _row(machine: Machine) -> str:
    return f"| {machine.text} | {f'says `{machine.shown}`' if machine.sentence else 'works'} |\n"
