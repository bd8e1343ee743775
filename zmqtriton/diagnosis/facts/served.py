"""The facts about a model, from the answers of its server, and the place in its code in stacks.

Does no I/O.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from zmqtriton.diagnosis.facts.places import find_place
from zmqtriton.figures import format_duration
from zmqtriton.findings import Finding
from zmqtriton_floor.reasons import Kind, Reason

SMALL_SHARE = 0.01
#: Minimum seconds of an execution that counts as hanging.
_LONG_EXECUTION_S = 2.0
#: Counters that grow when something ends; not those of clients that leave.
_ENDS = ("succeeded", "faults", "executions")

Document = Mapping[str, Any]
#: The states of instances that a reload or an unload ends.
_LEAVING = ("DRAINING", "STOPPING", "STOPPED")


class StepTimes(NamedTuple):
    """The mean times of the requests to the model of an ensemble's step."""

    model: str
    queue_ms: float
    compute_ms: float

    @property
    def whole_ms(self) -> float:
        return self.queue_ms + self.compute_ms


class AnswerReader(Protocol):
    """Asks a server, and keeps each answer."""

    @property
    def index(self) -> Sequence[Any]: ...

    @property
    def latest(self) -> Mapping[str, Any]: ...

    def ask(self, verb: str, arguments: dict[str, Any] | None = None) -> Any: ...

    def log(self, model: str, /) -> Sequence[Any]: ...

    def stacks(self, model: str, /) -> Mapping[str, Sequence[str]]: ...


@dataclass(frozen=True)
class Facts:
    """The answers of the server, and what the model's directory shows."""

    #: Age in seconds of past trouble that an overview of all models leaves out, if it was small.
    RECENT_S = 600.0
    #: The share of a time that is worth shortening by itself.
    LARGE_SHARE = 2 / 3
    WORTH_MENTIONING_MS = 10.0
    #: Name of the quota that makes requests wait.
    PACE = "max_executions_per_second"

    model: str
    #: 0 is all versions.
    version: int = 0
    #: Entries of the server's index, of all models.
    index: Sequence[Document] = ()
    status: Document = field(default_factory=dict)
    #: The status a moment later, where requests are being executed.
    later: Document | None = None
    #: Lines with the stacks of a process's threads, by instance; only read if something hangs.
    stacks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: The history of the model's last minute, where the server keeps one and requests have failed.
    last_minute: Document = field(default_factory=dict)
    #: Lines of the log about the model, oldest first.
    log: Sequence[Document] = ()
    #: Errors that a check of the model's directory finds, if this machine can read it.
    problems: Sequence[Finding] = ()
    #: Resources that the machine is short of, as the server measures them.
    pressure: Sequence[Document] = ()
    #: The directories of this name.
    directories: Sequence[str] = ()
    #: Current step of the model's load in words; "" if it is not being loaded.
    load_phase: str = ""
    #: Configuration of the model; only read if requests wait, or for an ensemble with requests.
    config: Document = field(default_factory=dict)
    #: Modules of add-ons that have findings, each with what it has read about the model.
    of_add_ons: Sequence[tuple[Any, Any]] = ()
    #: Repositories that have not answered; they may have directories of the model, too.
    silent_repositories: Sequence[str] = ()
    now_s: float = 0.0
    #: True if all models are explained, with the present trouble of each only.
    is_overview: bool = False

    def rows(self, table: str) -> list[Document]:
        """Return the rows of a table of the status that are of this model and version."""
        return [row for row in self.status.get(table) or () if self._is_meant(row)]

    @property
    def serves(self) -> bool:
        """True if a version of the model is ready, which no advice may put at risk."""
        return any(e.get("state") == "READY" for e in self.index if e["name"] == self.model)

    @property
    def is_stuck(self) -> bool:
        """True if a request, a load or an end may hang, so that its place is worth a look."""
        changes = any(entry.get("state") in {"LOADING", "UNLOADING"} for entry in self.entries)
        return bool(changes and self.stubs) or any(
            self.hanging(row) or self.stands_still(row) for row in self.rows("counts")
        )

    @property
    def word(self) -> str:
        """The model's name as a shell takes it."""
        return shlex.quote(self.model)

    @property
    def entries(self) -> list[Document]:
        """The model's entries in the index."""
        return [
            entry
            for entry in self.index
            if entry["name"] == self.model
            and (not self.version or entry.get("version") == str(self.version))
        ]

    @property
    def retired_versions(self) -> set[int]:
        """Numbers of versions that another version has replaced."""
        own = [entry for entry in self.index if entry["name"] == self.model]
        return {int(entry["version"]) for entry in own if self.is_retired(entry)}

    def is_retired(self, entry: Document) -> bool:
        """True of a version that was unloaded in favour of another one."""
        reason = Facts.reason_of(entry)
        return self.serves and reason is not None and reason.kind == Kind.UNLOADED

    def _is_meant(self, row: Document) -> bool:
        versions = (0, row.get("version", self.version))
        return row.get("model") == self.model and self.version in versions

    @property
    def stubs(self) -> list[Document]:
        return [row for row in self.rows("processes") if row["role"] == "stub"]

    @property
    def template(self) -> Document | None:
        """The process that has loaded the model for all of its instances."""
        return next((row for row in self.rows("processes") if row["role"] == "template"), None)

    @property
    def place(self) -> str:
        """The first place of a process in the model's code; "" if none is known."""
        return find_place(line for lines in self.stacks.values() for line in lines)

    def hanging(self, row: Document) -> list[Document]:
        """Return the processes of a version whose execution lasts much longer than others."""
        return [stub for stub in self._overlong(row) if stub["executing_s"] >= _LONG_EXECUTION_S]

    def _overlong(self, row: Document) -> list[Document]:
        of_version = [stub for stub in self.stubs if stub["version"] == row["version"]]
        return [stub for stub in of_version if stub.get("is_overlong")]

    def needs_second_look(self, row: Document) -> bool:
        """True for a version that has work, and no execution that hangs for certain."""
        return _has_work(row) and not self.hanging(row)

    def stands_still(self, row: Document) -> bool:
        """True if a version has work, but no execution has ended as usual between two readings."""
        if self.waits_for_slot(row) or self.waits_for_stream(row):
            return False
        is_timed = row.get("oldest_execution_ns") and row.get("usual_execution_ns")
        if is_timed and not self._overlong(row):
            return False
        for other in (self.later or {}).get("counts") or ():
            if (other["model"], other["version"]) == (row["model"], row["version"]):
                is_alike = all(other.get(key) == row.get(key) for key in _ENDS)
                return is_alike and _has_work(row) and _has_work(other)
        return False

    def ago(self, time_s: float) -> str:
        return f"{format_duration(max(0.0, self.now_s - time_s))} ago"

    @property
    def steps(self) -> list[str]:
        """Return the models of an ensemble's steps; none of another model."""
        steps = self.config.get("ensemble_scheduling", {}).get("step", ())
        return sorted({step["model_name"] for step in steps})

    def scale_commands(self, row: Document) -> tuple[str, ...]:
        """Return the commands that shorten a version's queue, each by one more instance.

        An ensemble has no instances, so its slowest step gets one. A model that waits for a model
        which it calls needs one more of both.
        """
        if self.steps:
            slowest = self.slowest(self.steps)
            return self.scale(slowest.model) if slowest else (f"zmqtriton-ctl stats {self.word}",)
        callee, own = self.slowest_callee(row), self.instances(self.model)
        if callee is None or self.instances(callee.model) > own:
            return self.scale(self.model)
        return (*self.scale(callee.model), *self.scale(self.model))

    def instances(self, model: str) -> int:
        """Return the number of instances of the version with most, except for ending instances."""
        counts = Counter(
            row.get("generation")
            for row in self.status.get("processes") or ()
            if row["role"] == "stub" and row.get("model") == model and row["state"] not in _LEAVING
        )
        return max(counts.values(), default=0)

    def scale(self, model: str) -> tuple[str, ...]:
        count, word = self.instances(model), shlex.quote(model)
        if not count and model != self.model:  # an ensemble itself
            return (f"zmqtriton-ctl explain {word}",)
        return (f"zmqtriton-ctl scale {word} {count + 1}",)

    def slowest_callee(self, row: Document) -> StepTimes | None:
        """Return the called model that takes most of an execution's time, if there is one."""
        callee = self.slowest(row.get("calls", ()))
        if callee is None or not row.get("executed"):
            return None
        compute_ms = row["compute_ns"] / row["executed"] / 1e6
        return callee if callee.whole_ms > Facts.LARGE_SHARE * compute_ms else None

    def slowest(self, models: Iterable[str]) -> StepTimes | None:
        times = [
            StepTimes(row["model"], Facts.queue_ms(row), row["compute_ns"] / row["executed"] / 1e6)
            for row in self.status.get("counts") or ()
            if row["model"] in models and row.get("executed")
        ]
        return max(times, key=lambda step: step.whole_ms, default=None)

    def waits_for_slot(self, row: Document) -> bool:
        """True if requests wait for the slot of a sequence, although nothing executes."""
        has_waiting = bool(row.get("pending") and row.get("sequences"))
        return has_waiting and not row.get("oldest_execution_ns")

    def waits_for_stream(self, row: Document) -> bool:
        """True if requests wait because each instance has MAX_STREAMS open streams."""
        return bool(row.get("pending") and row.get("streams") and not row["streams"]["room"])

    @staticmethod
    def reason_of(entry: Mapping[str, Any]) -> Reason | None:
        """Return the reason of an entry of the index, or a process's last one in the status."""
        if "why" in entry:
            return Reason.from_document(entry["why"])
        text = entry.get("reason", "") or entry.get("last_reason", "")
        return Reason.of(Kind.OTHER, text) if text else None

    @staticmethod
    def queue_ms(row: Document) -> float:
        """Return the average queue time of a request in ms."""
        count = row.get("executed") or row["succeeded"]
        return row.get("queue_ns", 0) / count / 1e6 if count else 0.0

    @staticmethod
    def answered(row: Document) -> int:
        """Return the number of requests that have got a response or an error."""
        return int(row["succeeded"] + row["failed"])


def _has_work(row: Document) -> bool:
    """True for a version that executes or has requests; an execution may outlive its requests."""
    return bool(row.get("unanswered") or row.get("oldest_execution_ns"))
