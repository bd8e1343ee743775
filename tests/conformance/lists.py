"""Which cases may differ from real Triton: on purpose, or not yet; and where answers are kept.

On purpose: the cases that docs/recorded-differences.md names. Not yet: pending.txt, a line
`name: what differs` each. Both are judged both ways: a case that does not differ has no place
there.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DIFFERENCES = HERE.parent.parent / "docs" / "recorded-differences.md"
#: Where the cases of another suite begin, that of PyTriton in its extra.
HEADING_OF_PYTRITON = "## PyTriton"
PENDING = HERE / "pending.txt"
INTENDED = HERE / "recorded" / "intended.json"


def recorded_path(table: str) -> Path:
    return HERE / "recorded" / f"{table}.json"


def recorded(table: str) -> dict[str, Any]:
    """Return real Triton's answers by the names of the cases; empty if it was never asked."""
    path = recorded_path(table)
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def intended() -> dict[str, Any]:
    return json.loads(INTENDED.read_text("utf-8")) if INTENDED.exists() else {}


def differing() -> list[str]:
    """The cases that docs/recorded-differences.md names, of Triton."""
    lines = DIFFERENCES.read_text("utf-8").partition(HEADING_OF_PYTRITON)[0].splitlines()
    cases = [line for line in lines if line.strip().startswith("Cases:")]
    return re.findall(r"`(\w+)`", " ".join(cases))


def pending() -> list[str]:
    """The cases of pending.txt; a line that begins with # is a heading."""
    lines = PENDING.read_text("utf-8").splitlines()
    return [line.partition(":")[0] for line in lines if line and not line.startswith("#")]
