"""Findings about a model's requests: failed, too late, refused, waiting. Does no I/O."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from zmqtriton.findings import Finding, note, warning
from zmqtriton_standard.ctl import format_duration
from zmqtriton_standard.tools.explaining.causes import explain_known, explain_text
from zmqtriton_standard.tools.explaining.facts import (
    LARGE_SHARE,
    PACE,
    RECENT_S,
    SMALL_SHARE,
    WORTH_MENTIONING_MS,
    Document,
    Facts,
    answered,
    brief,
    count_of,
    find_place,
    queue_ms,
)

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
_INSTANCES = "They wait for an instance, which more of them or larger batches make shorter."
_HAVE_SLOTS = "sequences in progress have all slots"
_SLOTS = (
    "Clients end a sequence by the flag END; max_sequence_idle_microseconds in config.pbtxt ends "
    "one that is idle. More instances have more slots."
)
#: Minimum requests per second that are a load, and minimum share of one token that is nearly all.
_BUSY_PER_S, _NEARLY_ALL = 10.0, 0.9
#: Maximum wait for a batch, as a multiple of max_queue_delay_microseconds; longer waits have
#: another cause.
_DELAYED = 1.5
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
    total = sum(map(answered, counts))
    last_s = failures[-1][0].get("time_s", facts.now_s) if failures else 0.0
    is_past = facts.now_s - last_s > RECENT_S and faults < SMALL_SHARE * total
    if facts.is_overview and is_past:
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
        yield warning(
            text,
            "The log may say more; errors that the model itself returns are in no log.",
            f"zmqtriton-ctl logs {facts.word}",
        )


def _share(facts: Facts, faults: int, total: int) -> str:
    """Return the number of failed requests in words.

    The last minute is added if the history has one, and the total is about a longer time.
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
    """Return the average time of an execution in seconds; 0 if none has ended."""
    return row.get("compute_ns", 0) / row["executed"] / 1e9 if row.get("executed") else 0.0


def _overdue_findings(facts: Facts, row: Document) -> Iterator[Finding]:
    count, total = _overdue(row), answered(row)
    if not count or _is_small(facts, count, total, row["overdue"]["at_s"]):
        return
    last = facts.ago(row["overdue"]["at_s"])
    share = f"{count} of {count_of(total, 'request')} failed, the last {last}"
    allowed_s, queued_s = (row["overdue"][key] / count for key in ("allowed_s", "queued_s"))
    wait, stats = f"clients wait for {brief(allowed_s)}", f"zmqtriton-ctl stats {facts.word}"
    took_s = _execution_s(row)
    if not took_s:
        said = row.get("last_error", {}).get("text", "")
        text = f"{share}: their deadline passed while they were executed: {wait}"
        advice = "Clients must wait longer, or the model must be faster."
        yield warning(f"{text} ({said})" if said else text, advice, stats)
    elif _is_too_short(row):
        yield warning(
            f"{share}: their deadline is shorter than the execution: {wait}, and an execution "
            f"takes {brief(took_s)}",
            "Clients must wait longer (X-Request-Timeout, client_timeout), or the model must be "
            "faster; more instances do not help.",
            stats,
        )
    elif queued_s > _LONG_WAIT * allowed_s:
        yield warning(
            f"{share}: their deadline passed while they were executed: {wait}, {brief(queued_s)} "
            f"of it went by in the queue, and an execution takes {brief(took_s)}",
            "More instances make the queue shorter; or clients wait longer.",
            *facts.scale_commands(row),
        )
    else:
        yield warning(
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
    is_past = facts.now_s - at_s > RECENT_S and count < SMALL_SHARE * total
    return facts.is_overview and is_past


# ---------------------------------------------------------------- refusals


def _refusal_findings(facts: Facts, row: Document) -> Iterator[Finding]:
    refused, total = row.get("refusals", {}), answered(row)
    for limit, refusal in _REFUSALS.items():
        count = refused.get(limit, 0)
        if count and not (facts.is_overview and count < SMALL_SHARE * total):
            share = f"{count} of {count_of(total, 'request')}"
            commands = facts.scale_commands(row) if refusal.is_of_queue else ()
            yield warning(refusal.text.format(share=share), refusal.advice, *commands)
    count = row.get("deadlines", 0) - _overdue(row)
    if count > 0 and not (facts.is_overview and count < SMALL_SHARE * total):
        text = f"{count} of {count_of(total, 'request')} waited in the queue until their deadline"
        if _is_too_short(row):
            yield warning(text, "They waited for executions that nobody waits for any more.")
        else:
            advice = f"{_SHORTER}; or clients wait longer."
            yield warning(text, advice, *facts.scale_commands(row))


# ----------------------------------------------------------------- waiting


def _hanging(facts: Facts, row: Document, stub: Document, command: str) -> Finding:
    """Tell of an instance that executes for too long, whatever the others do."""
    place = find_place(facts.stacks.get(stub["instance"], ()))
    long = format_duration(stub["executing_s"])
    usual_s = row["usual_execution_ns"] / 1e9
    text = f"instance {stub['instance']} hangs or is slow{place}: one execution lasts for {long}"
    restart = f"zmqtriton-ctl restart {facts.word} --instance {shlex.quote(stub['instance'])}"
    return warning(f"{text}, where others take {brief(usual_s)}", _ENDS_BY_ITSELF, command, restart)


def _waiting_findings(facts: Facts, row: Document) -> Iterator[Finding]:
    if row.get("pending") and any(q["quota"] == PACE for q in facts.rows("quotas")):
        return  # the quota is told
    stacks = f"zmqtriton-ctl stacks {facts.word}"
    if hanging := facts.hanging(row):
        yield from (_hanging(facts, row, stub, stacks) for stub in hanging[:_MAX_HANGING])
        if len(hanging) > _MAX_HANGING:
            yield warning(f"{len(hanging)} of its instances hang", _ENDS_BY_ITSELF, stacks)
        return
    streams = row.get("streams")
    if streams and row.get("pending") and not streams["room"]:
        yield _full_streams(facts, row, streams)
        return
    if facts.stands_still(row):
        held = count_of(row.get("unanswered", 0), "request")
        long = format_duration(row.get("oldest_execution_ns", 0) / 1e9)
        since = f", one execution for {long}" if long != "0s" else ""
        text = f"it hangs or is slow{facts.place}: {held} in progress{since}"
        reload = f"zmqtriton-ctl reload {facts.word}"
        text += ", and none completed during the check"
        yield warning(text, _ENDS_BY_ITSELF, stacks, reload)
        return
    if facts.waits_for_slot(row):
        waiting = count_of(row["pending"], "request")
        yield warning(
            f"{waiting} in its queue, though it executes nothing: {_HAVE_SLOTS}",
            _SLOTS,
            *facts.scale_commands(row),
        )
        return
    yield from _slow_findings(facts, row)


def _full_streams(facts: Facts, row: Document, streams: Mapping[str, int]) -> Finding:
    """Return a finding about requests that wait because all instances have MAX_STREAMS open."""
    waiting, count = count_of(row["pending"], "request"), streams["open"]
    verb = "waits" if row["pending"] == 1 else "wait"
    text = f"{waiting} {verb} for a stream to end, not for an instance: {count} are open, and "
    return warning(
        f"{text}MAX_STREAMS lets an instance have {streams['limit']}",
        "Raise MAX_STREAMS in config.pbtxt if the model can do more at the same time; more "
        "instances have more streams.",
        *facts.scale_commands(row),
        f"zmqtriton-ctl stats {facts.word}",
    )


def _slow_findings(facts: Facts, row: Document) -> Iterator[Finding]:
    """Tell of requests that take long because they wait.

    A stream may last for long while its instance is free; only the queue's own time tells.
    """
    if not row["succeeded"]:
        return
    whole_ms, waited_ms = row["success_ns"] / row["succeeded"] / 1e6, queue_ms(row)
    if whole_ms <= WORTH_MENTIONING_MS:
        return
    # of more than the whole, most is of requests that have failed, which are told
    if not LARGE_SHARE * whole_ms < waited_ms <= whole_ms:
        return
    text, where, advice = f"requests take {whole_ms:.1f} ms", "in the queue", _INSTANCES
    commands = facts.scale_commands(row)
    if step := facts.slowest_step:
        where = f"in the queues of its steps, the most at '{step.model}'"
        advice = (
            f"They wait for an instance of '{step.model}', which more of them or larger batches "
            "make shorter."
        )
    elif "streams" in row:
        advice = (
            f"They wait for a stream to end: an instance has {row['streams']['limit']} "
            "(MAX_STREAMS). A higher bound or more instances make that shorter."
        )
    elif facts.config.get("sequence_batching"):
        where, advice = f"in the queue: {_HAVE_SLOTS}", _SLOTS
    elif waited_ms < _DELAYED * facts.queue_delay_ms:
        where = f"in the queue, for others in their batch ({facts.queue_delay_ms:g} ms at most)"
        advice = "A lower max_queue_delay_microseconds makes it shorter; more instances do not."
        commands = (f"zmqtriton-ctl reload {facts.word}",)
    elif callee := facts.slowest_callee(row):
        where = f"in the queue: its instances wait for '{callee.model}', which they call"
        advice = f"More instances of it and of '{callee.model}' make the queue shorter."
    yield warning(
        f"{text}, and {waited_ms:.1f} ms of that {where}",
        advice,
        f"zmqtriton-ctl stats {facts.word}",
        *commands,
    )


def judge_tokens(clients: Sequence[Document]) -> Iterator[Finding]:
    """Name a token that sends nearly all of what the clients of several tokens send."""
    rates: Counter[str] = Counter()
    for client in clients:
        rates[client["token"]] += client["requests_per_s"]
    whole = sum(rates.values())
    for token, rate in rates.items() if len(rates) > 1 and whole >= _BUSY_PER_S else ():
        if token and rate >= _NEARLY_ALL * whole:
            yield note(
                f"the token '{token}' sends {rate / whole:.0%} of the requests, {rate:.3g} of "
                f"{whole:.3g} a second",
                "If others wait because of it, requests_per_second and concurrency in its line of "
                "the file of --tokens limit it.",
                "zmqtriton-ctl clients",
            )


def find_slowest_step(facts: Facts) -> Iterator[Finding]:
    """Name the step of an ensemble that takes the most time."""
    if step := facts.slowest_step:
        yield note(
            f"its slowest step is '{step.model}': a request to it takes {step.whole_ms:.1f} ms, "
            f"{step.queue_ms:.1f} ms of that in the queue",
            "",
            f"zmqtriton-ctl explain {shlex.quote(step.model)}",
        )


#: Minimum number of batches for a finding about their size.
_MIN_BATCHES = 20
#: Share of the wanted batch size; smaller batches are reported.
_SMALL = 0.5
#: Minimum shares of the batches for a reason: parted by the shapes of requests, or complete.
_PARTED, _COMPLETE = 0.2, 0.5
#: Requests that wait for longer than the delay and this share of an execution wait for an instance.
_TURN = 0.25
#: Advised delay as a multiple of the execution time: _SHORT_DELAY if requests come while an
#: instance is free, _LONG_DELAY if groups of clients take turns.
_SHORT_DELAY, _LONG_DELAY = 0.2, 1.25

_MORE = "Send more requests at the same time: by threads, coroutines or more clients."


def find_small_batches(facts: Facts) -> Iterator[Finding]:
    """Tell of batches that are much smaller than they may be, the reason and a remedy."""
    for row in facts.rows("counts"):
        batching = row.get("batching")
        if batching and batching["batches"] >= _MIN_BATCHES:
            size = batching["elements"] / batching["batches"]
            if size < _SMALL * batching["target"]:
                text = f"its batches have {size:.3g} of {batching['target']}: "
                reason, advice = _reason(row, batching)
                yield note(text + reason, advice, f"zmqtriton-ctl stats {facts.word}")


def _reason(row: Document, batching: Document) -> tuple[str, str]:
    """Return the reason for small batches, and what helps."""
    if "parted" not in batching:
        return (
            f"a batch has one request of each sequence, and {row['sequences']} are open now",
            "More sequences at the same time fill it: requests with equal correlation ids go one "
            "after the other.",
        )
    count, delay_us = batching["batches"], batching["delay_us"]
    if batching["parted"] > _PARTED * count:
        return _of_shapes(batching)
    executed = row.get("executed") or 1
    execution_ms = row.get("compute_ns", 0) / executed / 1e6
    takes_turns = queue_ms(row) - delay_us / 1e3 > _TURN * execution_ms
    if batching["complete"] > _COMPLETE * count and not takes_turns:
        reason = "most have all requests that there are, so clients send too few at the same time"
        if not delay_us:
            return reason, _MORE
        waits = brief(delay_us / 1e6)
        cost = f"Until then max_queue_delay_microseconds costs each of them up to {waits}."
        return reason, f"{_MORE} {cost}"
    delay = int((_LONG_DELAY if takes_turns else _SHORT_DELAY) * execution_ms * 1000)
    if delay > delay_us:
        return (
            f"max_queue_delay_microseconds is {delay_us}, and a free instance takes the few that "
            "wait",
            f"Set max_queue_delay_microseconds: {delay} in dynamic_batching, if fewer and larger "
            "batches are worth that wait; `zmqtriton simulate` compares delays.",
        )
    return f"few requests come within its max_queue_delay_microseconds of {delay_us}", _MORE


def _of_shapes(batching: Document) -> tuple[str, str]:
    differences = batching["differences"]
    share = f"{batching['parted']} of {batching['batches']} ended at a request with"
    shapes = [name for name, what in differences.items() if what == "shape"]
    optional = [name for name, what in differences.items() if what == "presence"]
    if optional:
        names = ", ".join(f"'{name}'" for name in optional)
        advice = f"Requests with and without {names} share no batch: send it always, or never."
        return f"{share} other inputs ({names})", advice
    names = ", ".join(f"'{name}'" for name in shapes) or "an input"
    return f"{share} another shape of {names}", (
        "Pad it to one shape in the client; or set allow_ragged_batch: true for it in config.pbtxt "
        "if execute() takes requests of several shapes."
    )
