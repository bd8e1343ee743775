"""Turns of loops that took longer than others can wait, as the server tells them in its log."""

from __future__ import annotations

import re

_LINE = re.compile(r"(?:a turn of the loop of|the loop of [\w-]+ is at one turn).*")

#: Places that may take longer, and why.
ALLOWED: dict[str, str] = {
    "(sitecustomize.py:": "the test makes it stand",
    "_wait_a_moment (outlet.py:": "50 ms at most, and for as long as its thread gets no processor",
}


def long_turns(log: str) -> list[str]:
    """Return what a log tells of turns that took too long."""
    lines = [match[0] for match in _LINE.finditer(log)]
    return [line for line in lines if not any(place in line for place in ALLOWED)]
