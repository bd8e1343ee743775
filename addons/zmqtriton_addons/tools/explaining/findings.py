"""Derives findings about a model from its facts: most important first. Does no I/O."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from zmqtriton.ctl import format_duration
from zmqtriton.findings import Finding, error, note, warning
from zmqtriton_addons.tools.explaining.causes import (
    Explanation,
    explain_reason,
    explain_text,
    reason_of,
)
from zmqtriton_addons.tools.explaining.places import find_place
from zmqtriton_floor.errors import closest_match
from zmqtriton_floor.reasons import Kind, Reason

_FAILED_REQUEST = re.compile(r"Failed to process the request\(s\).*?message: (.*)", re.DOTALL)
#: A start that takes longer is worth a look.
_LONG_LOAD_S = 30.0
#: A request that takes so many times as long as its execution has waited.
_WAITING_FACTOR = 3.0
_WORTH_MENTIONING_MS = 10.0
#: An overview of all models leaves out trouble that is over for so long, if little came of it.
_RECENT_S = 600.0
_SMALL_SHARE = 0.01
#: Causes outside the model, for which an instance that is back need not be restarted again.
_FROM_OUTSIDE = {Kind.KILLED, Kind.OUT_OF_MEMORY}
#: Counters that grow when something ends; not those of clients that leave.
_ENDS = ("succeeded", "faults", "executions")
_PACE, _MEMORY = "max_executions_per_second", "max_memory_bytes"

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Facts:
    """The answers of the server, and what the model's directory shows."""

    model: str
    #: 0 is all versions.
    version: int = 0
    #: Of all models.
    index: Sequence[Document] = ()
    status: Document = field(default_factory=dict)
    #: The status a moment later, where requests are being executed.
    later: Document | None = None
    #: What its processes write of their threads, where a request or a load stands still.
    stacks: Sequence[str] = ()
    #: The history of the model's last minute, where the server keeps one and requests have failed.
    last_minute: Document = field(default_factory=dict)
    #: Lines of the log about the model, oldest first.
    log: Sequence[Document] = ()
    #: What a check of the directory finds, where it can be read.
    problems: Sequence[Finding] = ()
    #: The directories of this name.
    directories: Sequence[str] = ()
    now_s: float = 0.0
    #: It is one of all models, of which only present trouble is shown.
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
        """True if a request or a load may hang, so that its place is worth a look."""
        is_loading = any(entry.get("state") == "LOADING" for entry in self.entries)
        return bool(is_loading and _stubs(self)) or any(
            _stands_still(self, row) for row in self.rows("counts")
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

    def _is_meant(self, row: Document) -> bool:
        versions = (0, row.get("version", self.version))
        return row.get("model") == self.model and self.version in versions


def find_all(facts: Facts) -> list[Finding]:
    """Return the findings; at least one."""
    if not facts.entries:
        return [_unknown_model(facts)]
    findings = [
        *_server_findings(facts),
        *_version_findings(facts),
        *_instance_findings(facts),
        *_request_findings(facts),
        *_quota_findings(facts),
        *_directory_findings(facts),
    ]
    findings = [*(findings or [_nothing_found(facts)]), *_canary_findings(facts)]
    return [_without_harm(facts, finding) for finding in findings]


def _without_harm(facts: Facts, finding: Finding) -> Finding:
    """Advise a reload where a restart would end a serving model."""
    if not facts.serves:
        return finding
    restart, reload = (f"zmqtriton-ctl {verb} {facts.word}" for verb in ("restart", "reload"))
    commands = [reload if command == restart else command for command in finding.commands]
    return replace(finding, commands=tuple(dict.fromkeys(commands)))


def _of(prefix: str, why: Explanation) -> Finding:
    return error(f"{prefix}{why.text}", why.advice, *why.commands)


def _unknown_model(facts: Facts) -> Finding:
    names = {entry["name"] for entry in facts.index}
    if facts.model in names:
        versions = [
            e["version"] for e in facts.index if e["name"] == facts.model and "version" in e
        ]
        served = ", ".join(versions) or "none"
        return error(
            f"there is no version {facts.version}; known: {served}",
            "Add its directory, and look at version_policy: by default the highest one is served.",
            f"zmqtriton-ctl explain {facts.word}",
        )
    close = closest_match(facts.model, names)
    meant = f"; did you mean '{close}'?" if close else ""
    looked_in = _repositories(facts.status)
    command = f"zmqtriton-ctl explain {shlex.quote(close)}" if close else "zmqtriton-ctl models"
    return error(f"there is no such model{meant}", f"The server looks in {looked_in}.", command)


def no_models(status: Document) -> Finding:
    """Explain a server that has no models at all."""
    return error(
        "it has no models",
        f"It looks in {_repositories(status)}. A model is a directory with 1/model.py in it.",
        "zmqtriton new NAME",
        "zmqtriton-ctl reload",
    )


def _repositories(status: Document) -> str:
    return ", ".join(status.get("repositories", ())) or "no repository"


def _server_findings(facts: Facts) -> Iterator[Finding]:
    summary = facts.status.get("server", {}).get("ready", "")
    if summary.startswith("stopping"):
        yield error(
            "the server is stopping", "Nothing is loaded any more.", "zmqtriton-ctl servers"
        )
    if "counts" in facts.status and facts.status["counts"] is None:
        text = "the broker does not answer, so no request is executed"
        yield error(
            text, "It is replaced if it dies.", "zmqtriton-ctl status", "zmqtriton-ctl logs"
        )


# ---------------------------------------------------------------- versions


def _version_findings(facts: Facts) -> Iterator[Finding]:
    entries = facts.entries
    for entry in entries:
        whose = f"version {entry['version']} is " if len(entries) > 1 else ""
        state, reason = entry.get("state", ""), reason_of(entry)
        if state == "READY":
            if reason:
                yield _of("ready, but ", explain_reason(facts.model, reason))
        elif state in {"LOADING", "UNLOADING"}:
            yield _transition(facts, entry, whose)
        elif not state and not reason:
            yield error(
                "not ready: nobody has loaded it",
                "The server loads models on request (--model-control-mode=explicit).",
                f"zmqtriton-ctl load {facts.word}",
            )
        else:
            yield from _unavailable(facts, f"{whose}not ready: ", reason)


def _unavailable(facts: Facts, prefix: str, reason: Reason | None) -> Iterator[Finding]:
    if reason is not None and reason.kind == Kind.MEMBER_NOT_LOADED:
        yield _missing_member(facts, prefix, reason)
        return
    explanation = explain_reason(facts.model, reason)
    if len(facts.directories) > 1:
        places = " and ".join(facts.directories)
        explanation = explanation._replace(text=f"{explanation.text}: {places}")
    yield _of(prefix, explanation)


def _missing_member(facts: Facts, prefix: str, reason: Reason) -> Finding:
    """Explain why a member of an ensemble is not there."""
    member: str = reason.values["member"]
    again = f"zmqtriton-ctl restart {facts.word}"
    entries = [entry for entry in facts.index if entry["name"] == member]
    if not entries:
        meant = reason.cause.values.get("suggestion", "") if reason.cause else ""
        hint = f"; did you mean '{meant}'?" if meant else ""
        advice = "Correct model_name of that step, or add the model to a repository."
        return error(f"{prefix}its member '{member}' does not exist{hint}", advice, again)
    reasons = [one for entry in entries if (one := reason_of(entry))]
    why = explain_reason(member, reasons[0] if reasons else reason.cause)
    if any(entry.get("state") == "READY" for entry in entries):
        text = f"{prefix}its member '{member}' was not ready when it was loaded; it is now"
        return error(text, "Load it again.", again)
    text = f"{prefix}its member '{member}' is not ready: {why.text}"
    return error(text, why.advice, f"zmqtriton-ctl explain {shlex.quote(member)}", again)


def _transition(facts: Facts, entry: Document, whose: str) -> Finding:
    if entry["state"] == "UNLOADING":
        text = f"{whose}not ready: it is being unloaded, and finishes the requests that it has"
        return note(text, "A hung one shows its place.", f"zmqtriton-ctl stacks {facts.word}")
    preparing = [p for p in facts.status.get("processes", ()) if "preparing" in p.get("state", "")]
    since = [stub["started_s"] for stub in _stubs(facts) if stub.get("started_s")]
    if preparing and not since:
        text = f"{whose}not ready: it is still loading; the server is {preparing[0]['state']}"
        advice = "The first load makes the environment; later ones find it."
        return note(text, advice, f"zmqtriton-ctl logs {facts.word} --follow")
    if not since:
        text = f"{whose}not ready: it waits for its turn to be loaded"
        advice = "--model-load-thread-count says how many are loaded at a time."
        return note(text, advice, "zmqtriton-ctl models")
    long = facts.now_s - min(since)
    place = find_place(facts.stacks)
    text = f"{whose}not ready: it is still loading{place}, since {format_duration(long)}"
    if long > _LONG_LOAD_S:
        text += ", and may hang"
    advice = "This shows the line that it is at; max_load_seconds is how long it may take."
    return note(text, advice, f"zmqtriton-ctl stacks {facts.word}")


# --------------------------------------------------------------- instances


def _stubs(facts: Facts) -> list[Document]:
    return [row for row in facts.rows("processes") if row["role"] == "stub"]


def _instance_findings(facts: Facts) -> Iterator[Finding]:
    has_given_up = not any(entry.get("state") == "READY" for entry in facts.entries)
    stubs = _stubs(facts)
    for stub in stubs:
        if not stub.get("last_reason") or has_given_up or _is_long_back(facts, stub):
            continue
        reason = reason_of(stub)
        finding = _of(
            f"instance {stub['instance']} has died and {_fate(facts, stub)}: ",
            explain_reason(facts.model, reason),
        )
        is_back = stub.get("state") == "READY"
        if is_back and reason is not None and reason.kind in _FROM_OUTSIDE:
            finding = _without(finding, f"zmqtriton-ctl restart {facts.word}")
        yield finding
    ready = sum(stub.get("state") == "READY" for stub in stubs)
    if stubs and not has_given_up and ready < len(stubs):
        states = ", ".join(sorted({s["state"] for s in stubs if s.get("state") != "READY"}))
        text = f"{ready} of {len(stubs)} instances are ready, others are {states}"
        yield warning(text, "Requests wait for the others.", f"zmqtriton-ctl status {facts.word}")


def _without(finding: Finding, command: str) -> Finding:
    return replace(finding, commands=tuple(c for c in finding.commands if c != command))


def _is_long_back(facts: Facts, stub: Document) -> bool:
    """True for an instance that has died and runs again, if an overview need not name it."""
    is_well = stub.get("state") == "READY" and facts.now_s - stub["started_s"] > _RECENT_S
    return facts.is_overview and is_well


def _fate(facts: Facts, stub: Document) -> str:
    if retry_after_s := stub.get("retry_after_s"):
        return f"is given up, and tried again every {retry_after_s:g} s"
    match stub.get("state"):
        case "FAILED":
            return "is given up"
        case "BACKOFF":
            return "waits for its restart"
    times = _count(stub.get("restarts", 0), "time")
    since = f", the last {_ago(facts, stub['started_s'])}" if stub.get("started_s") else ""
    return f"was restarted ({times}{since})"


# ---------------------------------------------------------------- requests


def _request_findings(facts: Facts) -> Iterator[Finding]:
    counts = facts.rows("counts")
    yield from _failure_findings(facts, counts)
    for row in counts:
        rejected = row.get("failures", {}).get("REJECTED", 0)
        if rejected and not (facts.is_overview and rejected < _SMALL_SHARE * _answered(row)):
            share = f"{rejected} of {_count(_answered(row), 'request')} refused"
            yield warning(
                f"the queue is too short: {share} because it was full",
                "More instances make it shorter; max_requests and max_queue_size are its limits.",
                f"zmqtriton-ctl scale {facts.word} {_more(facts)}",
            )
        yield from _waiting_findings(facts, row)


def _failure_findings(facts: Facts, counts: Sequence[Document]) -> Iterator[Finding]:
    failures = [
        (line, match[1]) for line in facts.log if (match := _FAILED_REQUEST.search(_unescape(line)))
    ]
    faults = sum(row.get("faults", 0) for row in counts)
    answered = sum(map(_answered, counts))
    last_s = failures[-1][0].get("time_s", facts.now_s) if failures else 0.0
    is_past = facts.now_s - last_s > _RECENT_S and faults < _SMALL_SHARE * answered
    if facts.is_overview and is_past:
        return
    if failures and not _is_of_a_death(failures[-1][1]):
        share = _share(facts, faults, answered) if faults else "requests failed"
        why = explain_text(facts.model, failures[-1][1])
        text = f"{share}, the last {_ago(facts, last_s)} because "
        yield _of(text, why._replace(commands=why.commands[:1]))
    elif faults and not any(stub.get("last_reason") for stub in _stubs(facts)):
        text = _share(facts, faults, answered)
        yield warning(text, "The log may say why.", _logs(facts))


def _share(facts: Facts, faults: int, answered: int) -> str:
    """Return how many requests have failed, and how many of the last minute if that is news."""
    interval_s = facts.last_minute.get("interval_s", 0.0)
    versions = [
        columns
        for name, columns in facts.last_minute.get("models", {}).items()
        if not facts.version or name == f"{facts.model}:{facts.version}"
    ]
    succeeded, failed = (
        round(interval_s * sum(rate or 0.0 for columns in versions for rate in columns[key]))
        for key in ("requests_per_s", "failures_per_s")
    )
    share = f"{faults} of {_count(answered, 'request')} failed"
    is_news = 0 < succeeded + failed < answered
    return f"{share}, {failed} of {succeeded + failed} in the last minute" if is_news else share


def _answered(row: Document) -> int:
    """Return how many requests have had an answer, right or wrong."""
    return int(row["succeeded"] + row["failed"])


def _ago(facts: Facts, time_s: float) -> str:
    return f"{format_duration(max(0.0, facts.now_s - time_s))} ago"


def _unescape(line: Document) -> str:
    return str(line["text"]).replace("\\n", "\n")


def _is_of_a_death(text: str) -> bool:
    return "is not healthy" in text


def _waiting_findings(facts: Facts, row: Document) -> Iterator[Finding]:
    if row.get("pending") and any(q["quota"] == _PACE for q in facts.rows("quotas")):
        return  # the quota is told
    if _stands_still(facts, row):
        place, held = find_place(facts.stacks), _count(row.get("unanswered", 0), "request")
        long = format_duration(row.get("oldest_execution_ns", 0) / 1e9)
        since = f", one execution for {long}" if long != "0s" else ""
        text = f"it hangs or is slow{place}: {held} in work{since}, and none has ended meanwhile"
        advice = (
            "This shows the line of code that each thread is at. The parameter "
            "max_execution_seconds ends an execution that takes longer."
        )
        yield warning(text, advice, f"zmqtriton-ctl stacks {facts.word}")
        return
    if not row["succeeded"] or not row["executions"]:
        return
    whole_ms = row["success_ns"] / row["succeeded"] / 1e6
    busy_ms = row["busy_s"] / row["executions"] * 1e3
    if whole_ms > _WORTH_MENTIONING_MS and whole_ms > _WAITING_FACTOR * busy_ms:
        text = f"requests take {whole_ms:.1f} ms, and only {busy_ms:.1f} ms of that in the model"
        advice = (
            "They wait for an instance, which more of them or larger batches make shorter; or for "
            "others in their batch, if there is a max_queue_delay_microseconds."
        )
        command = f"zmqtriton-ctl scale {facts.word} {_more(facts)}"
        yield warning(text, advice, f"zmqtriton-ctl stats {facts.word}", command)


def _stands_still(facts: Facts, row: Document) -> bool:
    later = facts.later or {}
    for other in later.get("counts") or ():
        if (other["model"], other["version"]) == (row["model"], row["version"]):
            is_alike = all(other.get(key) == row.get(key) for key in _ENDS)
            return is_alike and has_work(row) and has_work(other)
    return False


def has_work(row: Document) -> bool:
    """True of a version that executes or has requests; its clients may have left an execution."""
    return bool(row.get("unanswered") or row.get("oldest_execution_ns"))


def _more(facts: Facts) -> int:
    return len(_stubs(facts)) + 1


def _logs(facts: Facts) -> str:
    return f"zmqtriton-ctl logs {facts.word}"


# ------------------------------------------------------ quotas and canaries


def _quota_findings(facts: Facts) -> Iterator[Finding]:
    waiting = sum(row.get("pending", 0) for row in facts.rows("counts"))
    show = (f"zmqtriton-ctl status {facts.word}",)
    for row in facts.rows("quotas"):
        quota, limit = row["quota"], row["limit"]
        if quota == _PACE and waiting:
            held = _count(waiting, "request")
            text = f"its quota holds it back: {held} in its queue, {quota} is {limit:g}"
            yield warning(text, "Raise the parameter in config.pbtxt, or ask it less often.", *show)
        elif row.get("exceeded") and quota not in (_PACE, _MEMORY):
            text = f"its quota {quota} ({limit}) was exceeded {_count(row['exceeded'], 'time')}"
            yield warning(text, "Raise the parameter in config.pbtxt.", *show)


def _canary_findings(facts: Facts) -> Iterator[Finding]:
    for canary in facts.status.get("canaries", {}).get("models", ()):
        if canary["model"] != facts.model or canary["phase"] == "PROMOTED":
            continue
        share = f"version {canary['canary']} is tried beside version {canary['stable']}"
        phase, reason = canary["phase"], canary.get("reason", "")
        why = f": {reason}" if reason else ""
        text = f"{share} (canary, {phase.lower()}{why}; {canary['weight']:g} % of the requests"
        text += f", {canary['shadow']:g} % copied)" if canary.get("shadow") else ")"
        yield note(text, "", f"zmqtriton-ctl canary status {facts.word}")


# ------------------------------------------------------------- what remains


def _directory_findings(facts: Facts) -> Iterator[Finding]:
    """Report what a check finds beyond what the server says."""
    reasons = " ".join(entry.get("reason", "") for entry in facts.entries)
    for problem in facts.problems:
        text, place = problem.reason, problem.place
        if text not in reasons:
            directory = facts.directories[0] if facts.directories else "DIRECTORY"
            where = f" ({place})" if place else ""
            yield error(
                f"a check also finds: {text}{where}",
                "",
                f"zmqtriton check {shlex.quote(directory)}",
            )


def _nothing_found(facts: Facts) -> Finding:
    stubs, counts = _stubs(facts), facts.rows("counts")
    ready = sum(stub.get("state") == "READY" for stub in stubs)
    instances = f", {ready} of {_count(len(stubs), 'instance')} ready" if stubs else ""
    answered = _count(sum(row["succeeded"] for row in counts), "request")
    kinds: Counter[str] = Counter()
    for row in counts:
        kinds.update(row.get("failures", {}))
    failed = ", ".join(f"{number} {kind.lower()}" for kind, number in kinds.items() if number)
    text = f"ready{instances}, {answered} answered{failed and f', {failed}'}: nothing is wrong"
    return note(text, "", f"zmqtriton-ctl stats {facts.word}")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
