"""Facts that the doctor could not read."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from zmqtriton.findings import Finding, note
from zmqtriton_addons.tools.doctor.facts import Facts

_FORBIDDEN = os.strerror(errno.EACCES)


def judge_unread(facts: Facts) -> Iterator[Finding]:
    for what, reason in facts.unread.items():
        text, advice = f"could not be read: {what}: {reason}", "Nothing is said of that here."
        if reason.startswith(_FORBIDDEN):
            yield note(text, f"{advice} Root may read it.", "sudo zmqtriton-ctl doctor")
        else:
            yield note(text, advice)
