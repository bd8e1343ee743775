"""Findings about a model's requests: failed, too late, refused, waiting. Does no I/O."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from zmqtriton.diagnosis.facts.places import find_place
from zmqtriton.diagnosis.facts.served import SMALL_SHARE, Document, Facts
from zmqtriton.diagnosis.rules.causes import explain_known, explain_text
from zmqtriton.figures import brief, count_of, format_duration
from zmqtriton.findings import Finding

_FAILED_REQUEST = re.compile(r"Failed to process the request\(s\).*?message: (.*)", re.DOTALL)
#: Minimum share of the queue in the time that clients allow to be worth shortening. A model that
#: stops at the deadline has taken the rest of the time.
_LONG_WAIT = 0.1


class _Refusal(NamedTuple):
    """The meaning of a limit to the requests that it refuses; {share} is how many of how many."""

    text: str
    advice: str
    #: True if more instances make such refusals rarer.
    is_of_queue: bool = True


_ENDS_BY_ITSELF = (
    "This shows the line of code that each thread is at. The parameter max_execution_seconds ends "
    "an execution that takes longer."
)
#: Minimum requests per second that are a load, and minimum share of one token that is nearly all.
_BUSY_PER_S, _NEARLY_ALL = 10.0, 0.9
#: Maximum number of hanging instances with a finding of their own; more are counted.
_MAX_HANGING = 4
_SHORTER = "More instances make the queue shorter"
_REFUSALS: Mapping[str, _Refusal] = {
    "max_queue_size": _Refusal(
        "the queue is too short: {share} refused because it was full",
        f"{_SHORTER}; max_queue_size in config.pbtxt is its limit.",
    ),
    "max_model_requests": _Refusal(
        "{share} refused because too many were unanswered",
        f"{_SHORTER}; max_requests in config.pbtxt, or --max-model-requests, is the limit.",
    ),
    "max_requests": _Refusal(
        "{share} refused because too many were unanswered in the whole server",
        f"{_SHORTER}; --max-requests is the limit.",
    ),
    "memory": _Refusal(
        "{share} refused because those that wait take too much memory",
        f"{_SHORTER}; a lower --max-requests refuses earlier.",
    ),
    "queue_timeout": _Refusal(
        "{share} refused because they had waited for too long in the queue",
        f"{_SHORTER}; default_timeout_microseconds in config.pbtxt is the limit.",
    ),
    "token": _Refusal(
        "{share} refused for the limits of their tokens",
        "The file of the tokens has their limits.",
        is_of_queue=False,
    ),
}


def find_in_requests(facts: Facts) -> Iterator[Finding]:
    counts = facts.rows("counts")
    yield from _failure_findings(facts, counts)
    for row in counts:
        yield from _overdue_findings(facts, row)
        yield from _refusal_findings(facts, row)


def find_waits(facts: Facts) -> Iterator[Finding]:
    for row in facts.rows("counts"):
        yield from _waiting_findings(facts, row)


def _failure_findings(facts: Facts, counts: Sequence[Document]) -> Iterator[Finding]:
    failures = [
        (line, match[1])
        for line in facts.log
        if line.get("version") not in facts.retired_versions
        and (match := _FAILED_REQUEST.search(str(line["text"]).replace("\\n", "\n")))
    ]
    faults = sum(row.get("faults", 0) - _overdue(row) for row in counts)
    total = sum(map(Facts.answered, counts))
    last_s = failures[-1][0].get("time_s", facts.now_s) if failures else 0.0
    if _is_small(facts, faults, total, last_s):
        return
    if failures and "is not healthy" not in failures[-1][1]:
        share = _share(facts, faults, total) if faults else "requests failed"
        prefix = f"{share}, the last {facts.ago(last_s)} because "
        yield explain_text(facts.model, failures[-1][1], prefix)
    elif faults and not any(stub.get("last_reason") for stub in facts.stubs):
        text = _share(facts, faults, total)
        errors = [row["last_error"] for row in counts if "last_error" in row]
        last: Document = max(errors, key=lambda error: float(error["at_s"]), default={})
        if last:
            text += f", the last {facts.ago(last['at_s'])} "
            if finding := explain_known(facts.model, last["text"], f"{text}because "):
                yield finding
                return
            text += f"with the answer: {last['text']}"
        yield Finding.warning(
            text,
            "The log may say more; errors that the model itself returns are in no log.",
            f"zmqtriton-ctl logs {facts.word}",
        )


def _share(facts: Facts, faults: int, total: int) -> str:
    """Return the number of failed requests in words.

    If the history has the last minute, and the total covers a longer time, adds that minute.
    """
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
    share = f"{faults} of {count_of(total, 'request')} failed"
    is_news = 0 < succeeded + failed < total
    return f"{share}, {failed} of {succeeded + failed} in the last minute" if is_news else share


# --------------------------------------------------------------- deadlines


def _overdue(row: Document) -> int:
    """Return the number of requests that failed because their deadline passed in execution."""
    return int(row.get("overdue", {}).get("count", 0))


def _execution_s(row: Document) -> float:
    """Return the average time of an execution in seconds; 0 without one, and for streams.

    Streams may last long after the execution that began them.
    """
    responses = row.get("direct_responses", 0) + row.get("brokered_responses", 0)
    is_known = row.get("executed") and responses <= Facts.answered(row)
    return row.get("compute_ns", 0) / row["executed"] / 1e9 if is_known else 0.0


def _overdue_findings(facts: Facts, row: Document) -> Iterator[Finding]:
    count, total = _overdue(row), Facts.answered(row)
    if not count or _is_small(facts, count, total, row["overdue"]["at_s"]):
        return
    share = (
        f"{count} of {count_of(total, 'request')} failed, the last "
        f"{facts.ago(row['overdue']['at_s'])}"
    )
    allowed_s, queued_s = (row["overdue"][key] / count for key in ("allowed_s", "queued_s"))
    wait, stats = f"clients wait for {brief(allowed_s)}", f"zmqtriton-ctl stats {facts.word}"
    took_s = _execution_s(row)
    if not took_s:
        said = row.get("last_error", {}).get("text", "")
        text = f"{share}: their deadline passed while they were executed: {wait}"
        yield Finding.warning(
            f"{text} ({said})" if said else text,
            "Clients must wait longer, or the model must be faster.",
            stats,
        )
    elif _is_too_short(row):
        yield Finding.warning(
            f"{share}: their deadline is shorter than the execution: {wait}, and an execution "
            f"takes {brief(took_s)}",
            "Clients must wait longer (X-Request-Timeout, client_timeout), or the model must be "
            "faster; more instances do not help.",
            stats,
        )
    elif queued_s > _LONG_WAIT * allowed_s:
        yield Finding.warning(
            f"{share}: their deadline passed while they were executed: {wait}, {brief(queued_s)} "
            f"of it went by in the queue, and an execution takes {brief(took_s)}",
            "More instances make the queue shorter; or clients wait longer.",
            *facts.scale_commands(row),
        )
    else:
        yield Finding.warning(
            f"{share}: their deadline passed while they were executed: {wait}, and an execution "
            f"takes {brief(took_s)} on average",
            "Some executions take longer than others; clients must wait for those, too.",
            stats,
        )


def _is_too_short(row: Document) -> bool:
    """True if clients wait no longer than an execution takes."""
    allowed_s = row["overdue"]["allowed_s"] / _overdue(row) if _overdue(row) else 0.0
    return 0 < (1 - _LONG_WAIT) * allowed_s <= _execution_s(row)


def _is_small(facts: Facts, count: int, total: int, at_s: float) -> bool:
    """True of trouble that an overview leaves out."""
    is_past = facts.now_s - at_s > Facts.RECENT_S and count < SMALL_SHARE * total
    return facts.is_overview and is_past


# ---------------------------------------------------------------- refusals


def _refusal_findings(facts: Facts, row: Document) -> Iterator[Finding]:
    refused, total = row.get("refusals", {}), Facts.answered(row)
    for limit, refusal in _REFUSALS.items():
        count = refused.get(limit, 0)
        if count and not (facts.is_overview and count < SMALL_SHARE * total):
            share = f"{count} of {count_of(total, 'request')}"
            commands = facts.scale_commands(row) if refusal.is_of_queue else ()
            yield Finding.warning(refusal.text.format(share=share), refusal.advice, *commands)
    count = row.get("deadlines", 0) - _overdue(row)
    if count > 0 and not (facts.is_overview and count < SMALL_SHARE * total):
        text = f"{count} of {count_of(total, 'request')} waited in the queue until their deadline"
        if _is_too_short(row):
            yield Finding.warning(
                text, "They waited for executions that nobody waits for any more."
            )
        else:
            advice = f"{_SHORTER}; or clients wait longer."
            yield Finding.warning(text, advice, *facts.scale_commands(row))


# ----------------------------------------------------------------- waiting


def _hanging(facts: Facts, row: Document, stub: Document, command: str) -> Finding:
    """Return the finding about an instance whose execution takes too long."""
    place = find_place(facts.stacks.get(stub["instance"], ()))
    long = format_duration(stub["executing_s"])
    usual_s = row["usual_execution_ns"] / 1e9
    text = f"instance {stub['instance']} hangs or is slow{place}: one execution lasts for {long}"
    text += f", where others take {brief(usual_s)}"
    return Finding.warning(text, _ENDS_BY_ITSELF, command, _restart(facts, stub))


def _restart(facts: Facts, stub: Document) -> str:
    return f"zmqtriton-ctl restart {facts.word} --instance {shlex.quote(stub['instance'])}"


def _waiting_findings(facts: Facts, row: Document) -> Iterator[Finding]:
    if row.get("pending") and any(q["quota"] == Facts.PACE for q in facts.rows("quotas")):
        return  # the quota is told
    stacks = f"zmqtriton-ctl stacks {facts.word}"
    if hanging := facts.hanging(row):
        yield from (_hanging(facts, row, stub, stacks) for stub in hanging[:_MAX_HANGING])
        if len(hanging) > _MAX_HANGING:
            yield Finding.warning(f"{len(hanging)} of its instances hang", _ENDS_BY_ITSELF, stacks)
        return
    if facts.stands_still(row):
        held = count_of(row.get("unanswered", 0), "request")
        long = format_duration(row.get("oldest_execution_ns", 0) / 1e9)
        since = f", one execution for {long}" if long != "0s" else ""
        text = f"it hangs or is slow{facts.place}: {held} in progress{since}"
        text += ", and none completed during the check"
        restarts = (_restart(facts, stub) for stub in facts.stubs[:_MAX_HANGING])
        yield Finding.warning(text, _ENDS_BY_ITSELF, stacks, *restarts)


def judge_tokens(clients: Sequence[Document]) -> Iterator[Finding]:
    """Name a token that sends nearly all of what the clients of several tokens send."""
    rates: Counter[str] = Counter()
    for client in clients:
        rates[client["token"]] += client["requests_per_s"]
    whole = sum(rates.values())
    for token, rate in rates.items() if len(rates) > 1 and whole >= _BUSY_PER_S else ():
        if token and rate >= _NEARLY_ALL * whole:
            yield Finding.note(
                f"the token '{token}' sends {rate / whole:.0%} of the requests, {rate:.3g} of "
                f"{whole:.3g} a second",
                "If others wait because of it, requests_per_second and concurrency in its line of "
                "the file of --tokens limit it.",
                "zmqtriton-ctl clients",
            )
