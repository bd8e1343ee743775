"""Findings about the starts of a model's instances, by a spare process or without one."""

from __future__ import annotations

from collections.abc import Iterator

from zmqtriton.sdk.models import AnswerReader, Facts, Finding


def read(reader: AnswerReader, facts: Facts) -> None:
    """Read nothing: the status has all."""


def findings(facts: Facts, _: None) -> Iterator[Finding]:
    """Yield nothing: each start succeeds, at worst without a spare process."""
    yield from ()


def notes(facts: Facts, _: None) -> Iterator[Finding]:
    """Tell how the instances were started, each way once."""
    living = {stub["instance"] for stub in facts.stubs} | (
        {"template"} if facts.template else set()
    )
    instances: dict[str, list[str]] = {}
    for row in () if facts.is_overview else facts.rows("starts"):
        if row["instance"] in living:
            instances.setdefault(row["text"], []).append(row["instance"])
    for text, names in instances.items():
        yield Finding.note(f"{', '.join(names)} started {text}", "")
