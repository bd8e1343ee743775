"""Findings about requests that wait, by the kind of the model. Does no I/O."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

from zmqtriton.sdk.models import Facts, Finding, figures
from zmqtriton_extras.inspection.explaining.reading import AtWork
from zmqtriton_extras.inspection.explaining.stacks import Place, places

_INSTANCES = "They wait for an instance, which more of them or larger batches make shorter."
_HAVE_SLOTS = "sequences in progress have all slots"
_SLOTS = (
    "Clients end a sequence by the flag END; max_sequence_idle_microseconds in config.pbtxt ends "
    "one that is idle. More instances have more slots."
)
#: Maximum wait for a batch, as a multiple of max_queue_delay_microseconds; longer waits have
#: another cause.
_DELAYED = 1.5
#: Minimum responses of a request that count as a stream.
_STREAM = 2


class _Step(Protocol):
    """The mean times of the requests to the model of an ensemble's step."""

    @property
    def model(self) -> str: ...

    @property
    def queue_ms(self) -> float: ...

    @property
    def whole_ms(self) -> float: ...


def find_stops(facts: Facts) -> list[Finding]:
    """Return a finding about each instance that stands for a debugger."""
    findings = []
    for stop in facts.rows("debugged"):
        at = stop["place"].rpartition("/")[2]
        text = f"instance {stop['instance']} stands at {at}, "
        if stop["has_operator"] and at:
            advice = "It goes on after `continue`, or when the debugger ends."
            findings.append(Finding.note(f"{text}where somebody debugs it", advice))
        elif at:
            advice = "A debugger lets it go on; without one it does so by itself after 10 minutes."
            debug = f"zmqtriton-ctl debug {facts.word}"
            findings.append(Finding.warning(f"{text}where a breakpoint() waits", advice, debug))
    return [_of_standstill(finding) for finding in findings]


def find_waits(facts: Facts, state: AtWork, row: Mapping[str, Any]) -> Iterator[Finding]:
    """Tell what the requests to a version wait for."""
    if row.get("pending") and any(q["quota"] == Facts.PACE for q in facts.rows("quotas")):
        return  # the quota is told
    at_work = places(state.stacks, facts.model)
    stands = bool(facts.hanging(row)) or facts.stands_still(row)
    sends = [place for place in at_work if place.sends]
    if sends and stands:
        yield _unread(facts, row, sends[0])
    elif stands and not _is_in_threads(state, row):
        return  # the rest is told
    elif facts.waits_for_stream(row) and not stands:
        yield _full_streams(facts, row, row["streams"])
    elif _is_in_threads(state, row) and (stands or (at_work and _takes_long(row))):
        yield _in_threads(facts, row, [place for place in at_work if not place.executes])
    elif facts.waits_for_slot(row):
        waiting = figures.count_of(row["pending"], "request")
        yield Finding.warning(
            f"{waiting} in its queue, though it executes nothing: {_HAVE_SLOTS}",
            _SLOTS,
            *facts.scale_commands(row),
        )
    else:
        yield from _slow_findings(facts, state, row)
        yield from _gpu_findings(facts, at_work)


# --------------------------------------------------------------- decoupled models


def is_decoupled(state: AtWork) -> bool:
    return bool(state.config.get("model_transaction_policy", {}).get("decoupled"))


def _is_in_threads(state: AtWork, row: Mapping[str, Any]) -> bool:
    """True of requests that `execute` has taken and left to threads or tasks."""
    has_left = row.get("unanswered", 0) > row.get("pending", 0)
    return is_decoupled(state) and has_left and not row.get("oldest_execution_ns")


def _takes_long(row: Mapping[str, Any]) -> bool:
    """True if requests take much longer than their execution, and wait in no queue for it."""
    if not row["succeeded"]:
        return False
    whole_ms = row["success_ns"] / row["succeeded"] / 1e6
    compute_ms = row.get("compute_ns", 0) / max(1, row.get("executed", 0)) / 1e6
    later_ms: float = whole_ms - compute_ms - Facts.queue_ms(row)
    return later_ms > Facts.WORTH_MENTIONING_MS and later_ms > Facts.LARGE_SHARE * whole_ms


def _in_threads(facts: Facts, row: Mapping[str, Any], at_work: list[Place]) -> Finding:
    """Describe requests that the model's own threads or tasks execute."""
    held = figures.count_of(row["unanswered"] - row.get("pending", 0), "request")
    stacks = f"zmqtriton-ctl stacks {facts.word}"
    if not at_work:
        text = f"execute() has returned, and no thread of it is at work: it has left {held}"
        return _of_standstill(
            Finding.note(
                f"{text} to coroutines that wait, or to response senders",
                "If a stream does not go on: each response sender must send "
                "TRITONSERVER_RESPONSE_COMPLETE_FINAL, also where an exception ends the work.",
                stacks,
            )
        )
    places_of = " and ".join(dict.fromkeys(place.text.strip(" ()") for place in at_work))
    mean = ""
    if row["succeeded"]:
        mean = f", a request takes {row['success_ns'] / row['succeeded'] / 1e6:.1f} ms"
    return _of_standstill(
        Finding.warning(
            f"{held} in its own threads, not in its queue: it is at {places_of}{mean}",
            "Its threads are slow, not execute(). More of them, or less to wait for, make requests "
            "faster; this shows the lines where their time goes.",
            stacks,
            f"zmqtriton-ctl profile {facts.word} --seconds 2",
        )
    )


def _unread(facts: Facts, row: Mapping[str, Any], place: Place) -> Finding:
    long = figures.format_duration(row.get("oldest_execution_ns", 0) / 1e9)
    return _of_standstill(
        Finding.warning(
            f"its client does not read: send() waits{place.text}, for {long} in this execution",
            "It goes on when the client reads or leaves. Give each stream a thread of its own, so "
            "that a slow client holds up no other.",
            f"zmqtriton-ctl stacks {facts.word}",
        )
    )


def _of_standstill(finding: Finding) -> Finding:
    """Return a finding that says why nothing is completed, instead of a guess."""
    return replace(finding, is_of_standstill=True)


# ------------------------------------------------------------------- what waits


def _full_streams(facts: Facts, row: Mapping[str, Any], streams: Mapping[str, int]) -> Finding:
    """Return a finding about requests that wait because all instances have MAX_STREAMS open."""
    waiting, count = figures.count_of(row["pending"], "request"), streams["open"]
    verb = "waits" if row["pending"] == 1 else "wait"
    text = f"{waiting} {verb} for a stream to end, not for an instance: {count} are open, and "
    return Finding.warning(
        f"{text}MAX_STREAMS lets an instance have {streams['limit']}",
        "Raise MAX_STREAMS in config.pbtxt if the model can do more at the same time; more "
        "instances have more streams.",
        *facts.scale_commands(row),
        f"zmqtriton-ctl stats {facts.word}",
    )


def _slow_findings(facts: Facts, state: AtWork, row: Mapping[str, Any]) -> Iterator[Finding]:
    """Tell of requests that take long because they wait.

    A stream may last long while its instance is free, so only the time in the queue counts.
    """
    if not row["succeeded"]:
        return
    whole_ms, waited_ms = row["success_ns"] / row["succeeded"] / 1e6, Facts.queue_ms(row)
    path = follow(facts, state)
    waiting = _waiting_step(facts, path)
    if waiting is not None:
        waited_ms = max(waited_ms, waiting.queue_ms)
    if whole_ms <= Facts.WORTH_MENTIONING_MS:
        return
    # of more than the whole, most is of requests that have failed, which are told
    if not Facts.LARGE_SHARE * whole_ms < waited_ms <= whole_ms:
        return
    where, advice, commands = (
        _of_step(facts, waiting, path) if waiting else _of_config(facts, state, row)
    )
    yield Finding.warning(
        f"requests take {whole_ms:.1f} ms, and {waited_ms:.1f} ms of that {where}",
        advice,
        f"zmqtriton-ctl stats {facts.word}",
        *commands,
    )


#: Place of the waiting requests, advice, and its commands.
_Cause = tuple[str, str, tuple[str, ...]]


def _of_config(facts: Facts, state: AtWork, row: Mapping[str, Any]) -> _Cause:
    """Return the cause in a configuration, or else in the code."""
    commands = facts.scale_commands(row)
    batching = state.config.get("dynamic_batching", {})
    delay_ms = int(batching.get("max_queue_delay_microseconds", 0)) / 1e3
    reload = f"zmqtriton-ctl reload {facts.word}"
    if "streams" in row:
        advice = (
            f"They wait for a stream to end: an instance has {row['streams']['limit']} "
            "(MAX_STREAMS). A higher bound or more instances make that shorter."
        )
        return "in the queue", advice, commands
    if state.config.get("sequence_batching"):
        return f"in the queue: {_HAVE_SLOTS}", _SLOTS, commands
    if Facts.queue_ms(row) < _DELAYED * delay_ms:
        where = f"in the queue, for others in their batch ({delay_ms:g} ms at most)"
        advice = "A lower max_queue_delay_microseconds makes it shorter; more instances do not."
        return where, advice, (reload,)
    return _of_code(facts, state, row, commands)


def _of_code(
    facts: Facts, state: AtWork, row: Mapping[str, Any], commands: tuple[str, ...]
) -> _Cause:
    if callee := facts.slowest_callee(row):
        return (*_of_callee(facts, facts.model, callee), commands)
    if _is_streamed(state, row):
        advice = (
            "Send from threads or from `async def execute`, so that execute() takes others while "
            "streams last; or use more instances."
        )
        where = "in the queue: it streams in execute(), which takes no other request meanwhile"
        return where, advice, commands
    if _has_no_batches(state):
        advice = (
            "Add `dynamic_batching { }` to config.pbtxt, if execute() takes several requests at "
            "once; or use more instances."
        )
        where = "in the queue, and each execution has one request: no dynamic_batching is set"
        return where, advice, (f"zmqtriton-ctl reload {facts.word}", *commands)
    return "in the queue", _INSTANCES, commands


def _is_streamed(state: AtWork, row: Mapping[str, Any]) -> bool:
    responses = row.get("direct_responses", 0) + row.get("brokered_responses", 0)
    return is_decoupled(state) and responses >= _STREAM * max(1, row["succeeded"])


def _has_no_batches(state: AtWork) -> bool:
    """True for a model that could have batches, but is not configured to wait for them."""
    config = state.config
    kinds = ("dynamic_batching", "sequence_batching", "ensemble_scheduling")
    return int(config.get("max_batch_size", 0)) > 1 and not any(kind in config for kind in kinds)


# ------------------------------------------------------- ensembles and callers


def follow(facts: Facts, state: AtWork) -> list[_Step]:
    """Return the models that take the time of an ensemble: its slowest step, that one's, and so on.

    After a step that mostly waits for a model which it calls, that model follows.
    """
    path: list[_Step] = []
    name = facts.model
    while name in state.steps and len(path) < len(state.steps):
        step = facts.slowest(state.steps[name])
        if step is None:
            return path
        path.append(step)
        name = step.model
    if path and (callee := facts.slowest_callee(_row_of(facts, name))):
        path.append(callee)
    return path


def _row_of(facts: Facts, model: str) -> Mapping[str, Any]:
    rows = (row for row in facts.status.get("counts") or () if row["model"] == model)
    return max(rows, key=lambda row: int(row.get("executed", 0)), default={})


def _waiting_step(facts: Facts, path: list[_Step]) -> _Step | None:
    """Return the step of an ensemble, or what it calls, where requests wait the longest."""
    models = [step for step in path if facts.instances(step.model)]
    return max(models, key=lambda step: step.queue_ms, default=None)


def _of_step(facts: Facts, step: _Step, path: list[_Step]) -> _Cause:
    """Return the cause of waits for an ensemble."""
    where = f"in the queues of its steps, the most at '{step.model}'"
    commands = facts.scale(step.model)
    callee = facts.slowest_callee(_row_of(facts, step.model))
    if callee is None:
        return (
            where,
            f"They wait for an instance of '{step.model}', which more of them or larger batches "
            "make shorter.",
            commands,
        )
    of_callee, advice = _of_callee(facts, step.model, callee)
    if facts.instances(callee.model) <= facts.instances(step.model):
        commands = (*facts.scale(callee.model), *commands)
    return f"{where}{of_callee.removeprefix('in the queue')}", advice, commands


def _of_callee(facts: Facts, model: str, callee: _Step) -> tuple[str, str]:
    """Return the place of requests to a model that calls another, and the advice."""
    own, others = facts.instances(model), facts.instances(callee.model)
    whose = "one instance waits" if own == 1 else "instances wait"
    verb = "it calls" if own == 1 else "they call"
    where = f"in the queue: its {whose} for '{callee.model}', which {verb}"
    it = "it" if model == facts.model else f"'{model}'"
    if others > own:
        return where, f"More instances of {it} make the queue shorter; '{callee.model}' has enough."
    return where, f"More instances of {it} and of '{callee.model}' make the queue shorter."


def find_slowest_step(facts: Facts, state: AtWork) -> Iterator[Finding]:
    """Name the step of an ensemble that takes the most time, and where it spends that."""
    path = follow(facts, state)
    if not path:
        return
    step, last = path[0], path[-1]
    because = "" if last is step else f", because of '{last.model}' ({last.whole_ms:.1f} ms)"
    yield Finding.note(
        f"its slowest step is '{step.model}': a request to it takes {step.whole_ms:.1f} ms, "
        f"{step.queue_ms:.1f} ms of that in the queue{because}",
        "",
        f"zmqtriton-ctl explain {shlex.quote(last.model)}",
    )


def find_failing_callees(facts: Facts, row: Mapping[str, Any]) -> Iterator[Finding]:
    """Name the models that a failing model calls and that fail themselves."""
    for callee in row.get("calls") or () if row.get("faults") else ():
        other = _row_of(facts, callee)
        if other.get("faults"):
            share = f"{other['faults']} of {figures.count_of(Facts.answered(other), 'request')}"
            yield Finding.warning(
                f"'{callee}', which it calls, fails itself: {share}",
                "Look there first: this names the line.",
                f"zmqtriton-ctl explain {shlex.quote(callee)}",
            )


def _gpu_findings(facts: Facts, at_work: list[Place]) -> Iterator[Finding]:
    for place in at_work:
        if place.waits_for_gpu:
            yield Finding.note(
                f"it waits for its GPU{place.text} at this moment",
                "The GPU takes the time: larger batches use it better, and a profile says how much "
                "of the time that is.",
                f"zmqtriton-ctl profile {facts.word} --seconds 2",
            )
            return
