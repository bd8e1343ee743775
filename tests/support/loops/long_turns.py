"""Turns of loops that took longer than others can wait, as the server tells them in its log.

The server tells those beyond 250 ms. On a machine whose processors are all busy with other tests
computing takes twice as long, and a call waits for others that get no processor: here a turn is too
long beyond twice that, or if it stood for a second.
"""

from __future__ import annotations

import re

_LINE = re.compile(r"(?:a turn of the loop of|the loop of [\w-]+ is at one turn).*")
_TIMES = re.compile(r"([\d.]+) s of CPU, ([\d.]+) s in calls")
_CPU_S, _IN_CALLS_S = 0.5, 2.0

#: Places that may take longer, and why.
ALLOWED: dict[str, str] = {
    "(sitecustomize.py:": "the test makes it stand",
    "< start (threading.py:": "the machine has no processor for the new thread",
    "< finished_config (blueprints.py:": "a configuration of a megabyte, once for its load",
}


def long_turns(log: str) -> list[str]:
    """Return what a log tells of turns that took too long."""
    lines = [match[0] for match in _LINE.finditer(log) if _is_too_long(match[0])]
    return [line for line in lines if not any(place in line for place in ALLOWED)]


def _is_too_long(line: str) -> bool:
    times = _TIMES.search(line)
    return times is None or float(times[1]) > _CPU_S or float(times[2]) > _IN_CALLS_S
