"""Turns of loops that took longer than others can wait, as the server tells them in its log."""

from __future__ import annotations

import re

_LINE = re.compile(r"(?:a turn of the loop of|the loop of [\w-]+ is at one turn).*")
_TIMES = re.compile(r"([\d.]+) s of CPU, [\d.]+ s in calls \(and ([\d.]+) s without a processor\)")
#: Who gets no processor for so long waits in its calls for others that get none either.
_LONG_S = 0.25

#: Places that may take longer, and why.
ALLOWED: dict[str, str] = {
    "(sitecustomize.py:": "the test makes it stand",
}


def long_turns(log: str) -> list[str]:
    """Return what a log tells of turns that took too long, where the machine had time for them."""
    lines = [match[0] for match in _LINE.finditer(log) if not _is_of_a_busy_machine(match[0])]
    return [line for line in lines if not any(place in line for place in ALLOWED)]


def _is_of_a_busy_machine(line: str) -> bool:
    times = _TIMES.search(line)
    return times is not None and float(times[1]) < _LONG_S <= float(times[2])
