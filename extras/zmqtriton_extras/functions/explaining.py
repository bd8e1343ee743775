"""Explains in `zmqtriton-ctl explain` what a model's streams wait for, from its last log lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zmqtriton.sdk.models import AnswerReader, Facts, Finding

#: Log lines of `backend/streams.py` by kind; each is logged at most once a minute.
_LINES = {
    "room": re.compile(r"requests wait for room: \d+ streams have it$"),
    "readers": re.compile(r"\d+ of \d+ streams wait for their readers$"),
}
#: Seconds after which a log line is too old to explain the current state.
_RECENT_S = 120.0
_ADVICE = {
    "room": "A request waits until enough streams have left. Raise `budget` of @model if the "
    "model's memory allows it, or have more instances.",
    "readers": "They are left out of steps until their clients read, and hold no others up. A "
    "client that reads nothing for 30 seconds loses its connection.",
}


def read(reader: AnswerReader, facts: Facts) -> None:
    """Do nothing: the explanation needs only the log, which is in the facts."""


def notes(facts: Facts, nothing: None) -> Iterator[Finding]:
    """Return no notes: there are only findings."""
    return iter(())


def findings(facts: Facts, nothing: None) -> Iterator[Finding]:
    """Yield a finding if streams wait for room or for slow clients."""
    for kind, pattern in _LINES.items():
        lines = [line for line in facts.log if pattern.search(str(line["text"]))]
        time_s = lines[-1].get("time_s", facts.now_s) if lines else 0.0
        if facts.now_s - time_s <= _RECENT_S:
            commands = [c for row in facts.rows("counts") for c in facts.scale_commands(row)]
            text = f"{lines[-1]['text']}, {facts.ago(time_s)}"
            yield Finding.warning(text, _ADVICE[kind], *commands[: 2 * (kind == "room")])
