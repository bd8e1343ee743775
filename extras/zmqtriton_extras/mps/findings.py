"""Explanations of a model's use of MPS. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterator

from zmqtriton.sdk.models import AnswerReader, Facts, Finding


def read(reader: AnswerReader, facts: Facts) -> None:
    """Ask nothing: the status has all."""


def findings(facts: Facts, nothing: None) -> Iterator[Finding]:
    """Return nothing: without MPS, models serve as well."""
    return iter(())


def notes(facts: Facts, nothing: None) -> Iterator[Finding]:
    """Name the instances that do not use MPS although they should."""
    rows = facts.rows("mps")
    outside = [row["instance"] for row in rows if not row["is_client"]]
    if outside:
        why = rows[0]["problem"] or "it has not used the GPU yet, or in a container has other pids"
        yield Finding.warning(
            f"MPS has no client of {', '.join(outside)}: {why}",
            "Without MPS, the processes on a GPU take turns.",
            "nvidia-smi",
        )
    elif rows:
        yield Finding.note(f"its {len(rows)} instances share their GPUs by MPS", "")
