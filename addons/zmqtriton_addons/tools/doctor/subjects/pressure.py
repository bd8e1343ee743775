"""Waits for processors, memory and disks, as the kernel measures them (PSI)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from zmqtriton.findings import Finding
from zmqtriton_addons.tools.doctor.subjects.reading import ROOT, read
from zmqtriton_addons.tools.explaining.pressure import judge_pressure

_MINUTE = re.compile(r"^some .*?avg60=([\d.]+)", re.MULTILINE)
#: From so many percent of the time on it is trouble.
_TROUBLE = {
    "cpu": (40.0, "CPU is short"),
    "memory": (10.0, "memory is short"),
    "io": (40.0, "disks are slow or busy"),
}


def judge_machine(rows: Sequence[Mapping[str, Any]] | None, root: Path = ROOT) -> Iterator[Finding]:
    """Judge what a server has measured in the last minute, or the kernel where no server has."""
    yield from judge_pressure(_read_rows(root) if rows is None else rows)


def _read_rows(root: Path) -> Iterator[Mapping[str, str]]:
    for resource, (least, text) in _TROUBLE.items():
        match = _MINUTE.search(read(root / "proc/pressure" / resource))
        if match and float(match[1]) >= least:
            share = f"for {float(match[1]):.0f} % of the last minute a process waited for that"
            yield {"resource": resource, "text": f"{text}: {share}"}
