"""Explanations of what streams of one model wait for, by what its loop has logged last."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zmqtriton.sdk.models import AnswerReader, Facts, Finding, warning

#: The lines of `backend/streams.py`, which has one of each kind in a minute at most.
_LINES = {
    "room": re.compile(r"requests wait for room: \d+ streams have it$"),
    "readers": re.compile(r"\d+ of \d+ streams wait for their readers$"),
}
#: Seconds after which a line of the log is too old to explain the present state.
_RECENT_S = 120.0
_ADVICE = {
    "room": "A request waits until enough streams have left. Raise `room` of @model if the model's "
    "memory allows it; more instances have more room.",
    "readers": "They are left out of steps until their clients read, and hold no others up. A "
    "client that reads nothing for 30 seconds loses its connection.",
}


def read(reader: AnswerReader, facts: Facts) -> None:
    """Ask nothing: the log is known."""


def notes(facts: Facts, nothing: None) -> Iterator[Finding]:
    """Return nothing: a model that is well has none."""
    return iter(())


def findings(facts: Facts, nothing: None) -> Iterator[Finding]:
    """Tell what streams wait for: room, or their readers."""
    for kind, pattern in _LINES.items():
        lines = [line for line in facts.log if pattern.search(str(line["text"]))]
        time_s = lines[-1].get("time_s", facts.now_s) if lines else 0.0
        if facts.now_s - time_s <= _RECENT_S:
            commands = [c for row in facts.rows("counts") for c in facts.scale_commands(row)]
            text = f"{lines[-1]['text']}, {facts.ago(time_s)}"
            yield warning(text, _ADVICE[kind], *commands[: 2 * (kind == "room")])
