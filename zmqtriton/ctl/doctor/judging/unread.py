"""Facts that the doctor could not read."""

from __future__ import annotations

from collections.abc import Iterator

from zmqtriton.ctl.doctor.facts import Facts
from zmqtriton.ctl.doctor.findings import Finding, note


def judge_unread(facts: Facts) -> Iterator[Finding]:
    for what, reason in facts.unread.items():
        yield note(
            f"could not be read: {what}: {reason}",
            "Nothing is said of that here. Root may read it.",
            "sudo zmqtriton-ctl doctor",
        )
