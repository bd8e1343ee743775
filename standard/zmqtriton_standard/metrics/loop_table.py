"""Turns of the loops of all processes, as the supervisor keeps them for metrics. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from zmqtriton.sdk.process import BOUNDS_S
from zmqtriton.sdk.supervisor import ControlCall, CoreParts, Feature, Verb

_SIZE = len(BOUNDS_S) + 1
#: A longer turn is worth a line for people.
_SLOW_S = 0.25
_TIMES = ("cpu_s", "stood_s", "waited_s", "locked_s", "at_s")
_MAX_LETTERS = 1000
_SUPERVISOR, _BROKER = "supervisor", "broker"


class _Report(NamedTuple):
    """The last report of a process."""

    role: str
    #: Number of turns by duration.
    counts: Sequence[int]
    sum_s: float
    longest: Mapping[str, Any] | None


class LoopTable(Feature):
    """The longest turn of each process, and a histogram of times.

    Each process measures its own turns and reports them; the counts outlive the process.
    """

    def __init__(self, core: CoreParts) -> None:
        super().__init__(core)
        self._read_own = core.info.loop_turns
        #: Gunicorn forks the processes of HTTP.
        self._roles = {*core.policy.frontend_roles, "http"}
        #: Reports by the serial of their process; 0 is the supervisor.
        self._reports: dict[int, _Report] = {}
        #: Number of turns by duration and their seconds, by role; ended processes are included.
        self._totals: dict[str, tuple[list[int], float]] = {}

    @property
    def verbs(self) -> Mapping[str, Verb]:
        return {"turns": Verb(self._take_call)}

    def _take_call(self, call: ControlCall) -> None:
        for role in self._roles:
            if call.caller in self._audience.serials((role,)):
                self.take(call.caller, role, call.arguments)

    def take(self, serial: int, role: str, report: Mapping[str, Any]) -> None:
        """Record the report of a process; a report of another form does not count."""
        counts: Any = report.get("counts")
        sum_s: Any = report.get("sum_s")
        if type(counts) is not list or len(counts) != _SIZE:
            return
        if not all(map(_is_number, (*counts, sum_s))):
            return
        before = self._reports.get(serial, _Report(role, [0] * _SIZE, 0.0, None))
        totals, total_s = self._totals.get(role, ([0] * _SIZE, 0.0))
        grown = [max(0, now - then) for now, then in zip(counts, before.counts, strict=True)]
        grown_s = max(0.0, sum_s - before.sum_s)
        self._totals[role] = [*map(sum, zip(totals, grown, strict=True))], total_s + grown_s
        self._reports[serial] = _Report(role, counts, sum_s, _turn(report.get("longest")))

    def describe(self, counts: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return all counts by role, and a line for people about each process with a long turn."""
        broker = self._introductions.broker_serial
        self.take(0, _SUPERVISOR, self._read_own())
        self.take(broker, _BROKER, self._counts.turns)
        living = {0, broker, *self._audience.serials(self._roles)}
        self._reports = {s: report for s, report in self._reports.items() if s in living}
        slow = [
            {"resource": "loop", "text": _slowness(each.role, each.longest)}
            for each in self._reports.values()
            if each.longest is not None and _took_s(each.longest) > _SLOW_S
        ]
        rows = [
            {"role": role, "counts": of_role, "sum_s": round(sum_s, 3)}
            for role, (of_role, sum_s) in self._totals.items()
        ]
        return {"turns": rows, "slow_loops": slow}

    def describe_process(self, process: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the longest turn of a process; empty if it has reported nothing."""
        report = self._reports.get(process.get("serial", 0))
        is_meant = report is not None and report.role == process["role"]
        return {"longest_turn": report.longest} if report is not None and is_meant else {}


def _turn(longest: Any) -> Mapping[str, Any] | None:
    """Return a turn in the form of the status; None for anything else."""
    if not isinstance(longest, dict) or not all(_is_number(longest.get(n)) for n in _TIMES):
        return None
    place = str(longest.get("place"))[:_MAX_LETTERS]
    return {**{name: longest[name] for name in _TIMES}, "place": place}


def _took_s(turn: Mapping[str, Any]) -> float:
    return float(turn["cpu_s"] + turn["stood_s"] + turn["locked_s"])


def _slowness(name: str, turn: Mapping[str, Any]) -> str:
    place = str(turn["place"]).partition(" < ")[0]
    of_cpu = f"{turn['cpu_s']:.2f} s of CPU, {turn['stood_s']:.2f} s in calls"
    of_cpu += f", {turn['locked_s']:.2f} s for a lock" if turn["locked_s"] else ""
    text = f"others have lately waited {_took_s(turn):.2f} s for the process '{name}' ({of_cpu})"
    return f"{text}: it was in {place}" if place else text


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)
