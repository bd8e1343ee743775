"""The part of `zmqtriton-ctl status` about models that are loaded on demand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

HEADER = ("On demand", "Memory", "Loads", "Failed", "Idle", "Made room", "Waiting", "Last", "Ago")


def table_rows(status: dict[str, Any]) -> list[Sequence[str]]:
    """Return a row for each model; the last one has the sum and the limit."""
    waiting = status["waiting"]
    shown: list[Sequence[str]] = [
        (
            row["model"],
            _mib(row["bytes"]),
            *(str(row[key]) for key in ("loads", "failures", "idle", "memory")),
            str(waiting.get(row["model"], 0)),
            row["event"],
            f"{row['seconds_ago']:.0f}s",
        )
        for row in status["models"]
    ]
    if status["budget_bytes"]:
        used = f"{_mib(status['used_bytes'])} of {_mib(status['budget_bytes'])}"
        shown.append(("all models", used, *[""] * (len(HEADER) - 2)))
    return shown


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB" if size else "-"
