"""Derives findings about a model from its facts: most important first. Does no I/O."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from zmqtriton.diagnosis.facts.served import Document, Facts
from zmqtriton.diagnosis.rules.causes import explain_reason, judge_pressure
from zmqtriton.diagnosis.rules.requests import find_in_requests, find_waits
from zmqtriton.figures import count_of, format_bytes, format_duration
from zmqtriton.findings import Finding
from zmqtriton_floor.errors import closest_match
from zmqtriton_floor.reasons import Kind, Reason

#: Seconds of a load after which it may hang.
_LONG_LOAD_S = 30.0
#: Causes outside the model: an instance that has come back after one needs no other restart.
_FROM_OUTSIDE = {Kind.KILLED, Kind.OUT_OF_MEMORY}
_MEMORY = "max_memory_bytes"
_TURNS = "--model-load-thread-count says how many are loaded at a time."


def find_all(facts: Facts) -> list[Finding]:
    """Return the findings; at least one."""
    if not facts.entries:
        return [_unknown_model(facts)]
    more = [one for module, read in facts.of_add_ons for one in module.findings(facts, read)]
    findings = [
        *_server_findings(facts),
        *_version_findings(facts),
        *_instance_findings(facts),
        *_mismatch_findings(facts),
        *find_in_requests(facts),
        *(() if any(one.is_of_standstill for one in more) else find_waits(facts)),
        *_quota_findings(facts),
        *more,
        *_directory_findings(facts),
    ]
    findings = [*(findings or [_nothing_found(facts)]), *_budget_findings(facts)]
    for module, read in facts.of_add_ons:
        findings += module.notes(facts, read)
    findings += [
        Finding.note(
            f"it comes from {row['repository']}, which is {row['revision']} for this server", ""
        )
        for row in facts.rows("model_sources")
    ]
    findings += judge_pressure(facts.pressure)
    return [_without_harm(facts, finding) for finding in findings]


def _without_harm(facts: Facts, finding: Finding) -> Finding:
    """Advise a reload with new processes where a restart would interrupt a serving model."""
    if not facts.serves:
        return finding
    restart, renew = (
        f"zmqtriton-ctl restart {facts.word}",
        f"zmqtriton-ctl reload {facts.word} --force",
    )
    commands = [renew if command == restart else command for command in finding.commands]
    return replace(finding, commands=tuple(dict.fromkeys(commands)))


def _unknown_model(facts: Facts) -> Finding:
    names = {entry["name"] for entry in facts.index}
    if facts.model in names:
        versions = [
            e["version"] for e in facts.index if e["name"] == facts.model and "version" in e
        ]
        served = ", ".join(versions) or "none"
        return Finding.error(
            f"there is no version {facts.version}; known: {served}",
            "Add its directory, and look at version_policy: by default the highest one is served.",
            f"zmqtriton-ctl explain {facts.word}",
        )
    close = closest_match(facts.model, names)
    meant = f"; did you mean '{close}'?" if close else ""
    looked_in = _repositories(facts.status)
    command = f"zmqtriton-ctl explain {shlex.quote(close)}" if close else "zmqtriton-ctl models"
    return Finding.error(
        f"there is no such model{meant}", f"The server looks in {looked_in}.", command
    )


def no_models(status: Document) -> Finding:
    """Explain a server that has no models at all."""
    return Finding.error(
        "it has no models",
        f"It looks in {_repositories(status)}. A model is a directory with 1/model.py in it.",
        "zmqtriton new NAME --class",
        "zmqtriton-ctl reload",
    )


def _repositories(status: Document) -> str:
    return ", ".join(status.get("repositories", ())) or "no repository"


def _server_findings(facts: Facts) -> Iterator[Finding]:
    summary = facts.status.get("server", {}).get("ready", "")
    if summary.startswith("stopping"):
        yield Finding.error(
            "the server is stopping", "Nothing is loaded any more.", "zmqtriton-ctl servers"
        )
    if "counts" in facts.status and facts.status["counts"] is None:
        yield Finding.error(
            "timed out: the broker has not answered, so nothing is known of requests",
            "On a busy machine, ask again. It is replaced if it dies; if it hangs, no request is "
            "executed.",
            "zmqtriton-ctl status",
            "zmqtriton-ctl logs",
        )


# ---------------------------------------------------------------- versions


def _version_findings(facts: Facts) -> Iterator[Finding]:
    entries = facts.entries
    for entry in entries:
        whose = f"version {entry['version']} is " if len(entries) > 1 else ""
        state, reason = entry.get("state", ""), Facts.reason_of(entry)
        if facts.is_retired(entry):
            if facts.version:
                text = "not ready: it was unloaded, and another version serves"
                yield Finding.note(text, "", f"zmqtriton-ctl status {facts.word}")
            continue
        if state == "READY":
            if reason:
                yield explain_reason(facts.model, reason, "ready, but ")
        elif state in {"LOADING", "UNLOADING"}:
            yield _transition(facts, entry, whose)
        elif not state and facts.load_phase:
            text = f"not ready: it is being loaded: {facts.load_phase}"
            if facts.load_phase.startswith("it waits"):
                yield Finding.note(text, _TURNS, "zmqtriton-ctl models")
            else:
                again = f"zmqtriton-ctl restart {facts.word}"
                yield Finding.note(text, "Where that hangs, a restart begins anew.", again)
        elif not state and not reason:
            yield Finding.error(
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
    finding = explain_reason(facts.model, reason, prefix)
    if len(facts.directories) > 1:
        finding = replace(finding, text=f"{finding.text}: {' and '.join(facts.directories)}")
    yield finding


def _missing_member(facts: Facts, prefix: str, reason: Reason) -> Finding:
    """Explain why a member of an ensemble is not there."""
    member: str = reason.values["member"]
    again = f"zmqtriton-ctl restart {facts.word}"
    entries = [entry for entry in facts.index if entry["name"] == member]
    if not entries:
        meant = reason.cause.values.get("suggestion", "") if reason.cause else ""
        hint = f"; did you mean '{meant}'?" if meant else ""
        advice = "Correct model_name of that step, or add the model to a repository."
        return Finding.error(f"{prefix}its member '{member}' does not exist{hint}", advice, again)
    reasons = [one for entry in entries if (one := Facts.reason_of(entry))]
    why = explain_reason(member, reasons[0] if reasons else reason.cause)
    if any(entry.get("state") == "READY" for entry in entries):
        text = f"{prefix}its member '{member}' was not ready when it was loaded; it is now"
        return Finding.error(text, "Load it again.", again)
    text = f"{prefix}its member '{member}' is not ready: {why.text}"
    return Finding.error(text, why.advice, f"zmqtriton-ctl explain {shlex.quote(member)}", again)


def _transition(facts: Facts, entry: Document, whose: str) -> Finding:
    if entry["state"] == "UNLOADING":
        unanswered = sum(row.get("unanswered", 0) for row in facts.rows("counts"))
        rest = f", and finishes {count_of(unanswered, 'request')}" if unanswered else ""
        text = f"{whose}not ready: it is being unloaded{facts.place}{rest}"
        advice = "This shows the line that it is at. A process that does not end in time is killed."
        return Finding.note(text, advice, f"zmqtriton-ctl stacks {facts.word}")
    preparing = [p for p in facts.status.get("processes", ()) if "preparing" in p.get("state", "")]
    since = [stub["started_s"] for stub in facts.stubs if stub.get("started_s")]
    if preparing and not since:
        text = f"{whose}not ready: it is still loading; the server is {preparing[0]['state']}"
        advice = "The first load makes the environment; later ones find it."
        return Finding.note(text, advice, f"zmqtriton-ctl logs {facts.word} --follow")
    if not since:
        text = f"{whose}not ready: it waits for its turn to be loaded"
        return Finding.note(text, _TURNS, "zmqtriton-ctl models")
    long = facts.now_s - min(since)
    place = facts.place
    text = f"{whose}not ready: it is still loading{place}, since {format_duration(long)}"
    if long > _LONG_LOAD_S:
        text += ", and may hang"
    advice = "This shows the line that it is at; max_load_seconds is how long it may take."
    commands = [f"zmqtriton-ctl stacks {facts.word}"]
    if not facts.status.get("is_listening", True):
        text += "; no port is open until then, so no model serves clients"
        advice += " Correct model.py, and load it again; --early-liveness opens ports at once."
        commands.append(f"zmqtriton-ctl restart {facts.word}")
    return Finding.note(text, advice, *commands)


# --------------------------------------------------------------- instances


def _instance_findings(facts: Facts) -> Iterator[Finding]:
    has_given_up = not any(entry.get("state") == "READY" for entry in facts.entries)
    stubs = facts.stubs
    for stub in stubs:
        is_back = stub.get("state") == "READY"
        # an overview need not name an instance that has died and runs again for long
        age_s = facts.now_s - stub.get("started_s", facts.now_s)
        is_past = is_back and facts.is_overview and age_s > Facts.RECENT_S
        if not stub.get("last_reason") or has_given_up or is_past:
            continue
        reason = Facts.reason_of(stub)
        prefix = f"instance {stub['instance']} has died and {_fate(facts, stub)}: "
        finding = explain_reason(facts.model, reason, prefix)
        if is_back and reason is not None and reason.kind in _FROM_OUTSIDE:
            again = f"zmqtriton-ctl restart {facts.word}"
            commands = tuple(each for each in finding.commands if each != again)
            finding = replace(finding, commands=commands)
        yield finding
    ready = sum(stub.get("state") == "READY" for stub in stubs)
    if stubs and not has_given_up and ready < len(stubs):
        states = ", ".join(sorted({s["state"] for s in stubs if s.get("state") != "READY"}))
        text = f"{ready} of {len(stubs)} instances are ready, others are {states}"
        yield Finding.warning(
            text, "Requests wait for the others.", f"zmqtriton-ctl status {facts.word}"
        )


def _fate(facts: Facts, stub: Document) -> str:
    if retry_after_s := stub.get("retry_after_s"):
        return f"is given up, and tried again every {retry_after_s:g} s"
    match stub.get("state"):
        case "FAILED":
            return "is given up"
        case "BACKOFF":
            return "waits for its restart"
    times = count_of(stub.get("restarts", 0), "time")
    since = f", the last {facts.ago(stub['started_s'])}" if stub.get("started_s") else ""
    return f"was restarted ({times}{since})"


# ------------------------------------------------------ quotas


def _mismatch_findings(facts: Facts) -> Iterator[Finding]:
    """Tell where the code of the model differs from its configuration, as its processes saw it."""
    for text in dict.fromkeys(text for row in facts.stubs for text in row.get("mismatches", ())):
        advice = "Correct model.py or config.pbtxt, so that both have the same tensors."
        yield Finding.warning(f"its code {text}", advice, f"zmqtriton-ctl reload {facts.word}")


def _budget_findings(facts: Facts) -> Iterator[Finding]:
    """Yield notes about a sleeping model, and about its memory on GPUs with a budget."""
    asleep_s = facts.status.get("asleep_s", {}).get(facts.model)
    if asleep_s is not None:
        text = f"it has slept for {format_duration(asleep_s)}, without most of its memory"
        yield Finding.note(
            text, "Its next request wakes it up.", f"zmqtriton-ctl wake {facts.word}"
        )
    on_demand = facts.status.get("on_demand") or {}
    budgets = {str(row["gpu"]): row for row in on_demand.get("gpus", ())}
    for row in on_demand.get("models", ()) if budgets else ():
        for gpu, size in row["gpu_bytes"].items() if row["model"] == facts.model else ():
            used, all_bytes = (budgets[gpu][key] for key in ("used_bytes", "budget_bytes"))
            text = f"it has {format_bytes(size)} on GPU {gpu}, where models have "
            yield Finding.note(f"{text}{format_bytes(used)} of {format_bytes(all_bytes)}", "")


def _quota_findings(facts: Facts) -> Iterator[Finding]:
    waiting = sum(row.get("pending", 0) for row in facts.rows("counts"))
    show = (f"zmqtriton-ctl status {facts.word}",)
    reload = f"zmqtriton-ctl reload {facts.word}"
    for row in facts.rows("quotas"):
        quota, limit = row["quota"], row["limit"]
        if quota == Facts.PACE and waiting:
            held = count_of(waiting, "request")
            text = f"its quota holds it back: {held} in its queue, {quota} is {limit:g}"
            advice = "Raise the parameter in config.pbtxt, or ask it less often."
            yield Finding.warning(text, advice, *show, reload)
        elif row.get("exceeded") and quota not in (Facts.PACE, _MEMORY):
            text = f"its quota {quota} ({limit}) was exceeded {count_of(row['exceeded'], 'time')}"
            yield Finding.warning(text, "Raise the parameter in config.pbtxt.", *show, reload)


# ------------------------------------------------------------- what remains


def _directory_findings(facts: Facts) -> Iterator[Finding]:
    """Report what a check finds beyond what the server says."""
    reasons = " ".join(entry.get("reason", "") for entry in facts.entries)
    kinds = {reason.kind for entry in facts.entries if (reason := Facts.reason_of(entry))}
    if not facts.serves and not facts.directories and Kind.REPOSITORY_SILENT not in kinds:
        for repository in facts.silent_repositories:
            silent = Reason.of(Kind.REPOSITORY_SILENT, "", repository=repository)
            yield explain_reason(facts.model, silent)
    for problem in facts.problems:
        text, place = problem.reason, problem.place
        if text not in reasons:
            directory = facts.directories[0] if facts.directories else "DIRECTORY"
            where = f" ({place})" if place else ""
            yield Finding.error(
                f"a check also finds: {text}{where}",
                "",
                f"zmqtriton check {shlex.quote(directory)}",
            )


def _nothing_found(facts: Facts) -> Finding:
    stubs, counts = facts.stubs, facts.rows("counts")
    ready = sum(stub.get("state") == "READY" for stub in stubs)
    instances = f", {ready} of {count_of(len(stubs), 'instance')} ready" if stubs else ""
    answered = count_of(sum(row["succeeded"] for row in counts), "request")
    kinds: Counter[str] = Counter()
    for row in counts:
        kinds.update(row.get("failures", {}))
    failed = ", ".join(f"{number} {kind.lower()}" for kind, number in kinds.items() if number)
    text = f"ready{instances}, {answered} answered{failed and f', {failed}'}: nothing is wrong"
    return Finding.note(text, "", f"zmqtriton-ctl stats {facts.word}")
