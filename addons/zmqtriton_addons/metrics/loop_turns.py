"""The turns of the loops of the server's processes as Prometheus text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from zmqtriton_addons.metrics.model_metrics import head, number
from zmqtriton_addons.metrics.series import labels_text
from zmqtriton_floor.process.loop_turns import BOUNDS_S

_LONGEST = "zmqtriton_loop_turn_seconds_max"
_ALL = "zmqtriton_loop_turn_seconds"


def render(status: Mapping[str, Any]) -> str:
    lines = [*_longest(status["processes"]), *_all(status.get("turns", ()))]
    return "".join(f"{line}\n" for line in lines)


def _longest(processes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Return the lines for the longest turn of each role; 0 if none was worth a look."""
    longest: dict[str, float] = {}
    for process in processes:
        if "longest_turn" in process:
            turn, role = process["longest_turn"], process["role"]
            took_s = 0.0 if turn is None else turn["cpu_s"] + turn["stood_s"]
            longest[role] = max(longest.get(role, 0.0), took_s)
    text = "Longest turn of a process's loop in the last minutes, without waits for a processor"
    yield from head(_LONGEST, text, "gauge")
    for role, took_s in longest.items():
        yield f"{_LONGEST}{labels_text(process=role)} {number(round(took_s, 3))}"


def _all(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    yield from head(_ALL, "Turns that took 10 ms or longer", "histogram")
    bounds = [*map(str, BOUNDS_S), "+Inf"]
    for row in rows:
        role, sums = row["role"], [*accumulate(row["counts"])]
        for bound, count in zip(bounds, sums, strict=True):
            yield f"{_ALL}_bucket{labels_text(process=role, le=bound)} {count}"
        yield f"{_ALL}_sum{labels_text(process=role)} {number(row['sum_s'])}"
        yield f"{_ALL}_count{labels_text(process=role)} {sums[-1]}"
