"""The turns of the loops of all processes: the longest of each, and how many took how long.

Each process measures its own and tells them; the counts outlive it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zmqtriton_floor.process.loop_turns import BOUNDS_S, LONG_NS

_SIZE = len(BOUNDS_S) + 1
_TIMES = ("cpu_s", "stood_s", "waited_s", "at_s")
_MAX_LETTERS = 1000


class LoopTurnsTable:
    def __init__(self) -> None:
        #: By serial number of the process.
        self._counts: dict[int, Sequence[int]] = {}
        self._sums_s: dict[int, float] = {}
        self._longest: dict[int, dict[str, Any]] = {}
        #: Of all processes by their role, those that have ended included.
        self._totals: dict[str, tuple[list[int], float]] = {}

    def take(self, serial: int, role: str, report: Mapping[str, Any]) -> None:
        """Take the report of a process; one of another form does not count."""
        counts: Any = report.get("counts")
        sum_s: Any = report.get("sum_s")
        if type(counts) is not list or len(counts) != _SIZE:
            return
        if not all(map(_is_number, (*counts, sum_s))):
            return
        longest = report.get("longest")
        before = self._counts.get(serial, (0,) * _SIZE)
        totals, total_s = self._totals.get(role, ([0] * _SIZE, 0.0))
        grown_s = max(0.0, sum_s - self._sums_s.get(serial, 0.0))
        grown = [max(0, now - then) for now, then in zip(counts, before, strict=True)]
        self._totals[role] = [*map(sum, zip(totals, grown, strict=True))], total_s + grown_s
        self._counts[serial], self._sums_s[serial] = counts, sum_s
        if isinstance(longest, dict) and all(_is_number(longest.get(name)) for name in _TIMES):
            place = str(longest.get("place"))[:_MAX_LETTERS]
            self._longest[serial] = {**{name: longest[name] for name in _TIMES}, "place": place}
        else:
            self._longest.pop(serial, None)

    def forget(self, serial: int) -> None:
        for figures in (self._counts, self._sums_s, self._longest):
            figures.pop(serial, None)

    def describe_process(self, serial: int) -> dict[str, Any]:
        """Return what the status has of a process; nothing if that told nothing."""
        if serial not in self._counts:
            return {}
        return {"longest_turn": self._longest.get(serial)}

    def slow_loops(self, names: Mapping[int, str]) -> list[dict[str, str]]:
        """Return a line for people about each of these processes that has had a long turn."""
        return [
            {"resource": "loop", "text": _slowness(name, self._longest[serial])}
            for serial, name in names.items()
            if serial in self._longest and _took_s(self._longest[serial]) > LONG_NS / 1e9
        ]

    def describe(self) -> list[dict[str, Any]]:
        """Return the counts of all processes together, by role."""
        return [
            {"role": role, "counts": counts, "sum_s": round(sum_s, 3)}
            for role, (counts, sum_s) in self._totals.items()
        ]


def _took_s(turn: Mapping[str, Any]) -> float:
    return float(turn["cpu_s"] + turn["stood_s"])


def _slowness(name: str, turn: Mapping[str, Any]) -> str:
    place = str(turn["place"]).partition(" < ")[0]
    of_cpu = f"{turn['cpu_s']:.2f} s of CPU, {turn['stood_s']:.2f} s in calls"
    text = f"others have lately waited {_took_s(turn):.2f} s for the process '{name}' ({of_cpu})"
    return f"{text}: it was in {place}" if place else text


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)
