"""Findings about requests that wait, by the kind of the model. Does no I/O."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from zmqtriton.findings import Finding, note, warning
from zmqtriton_standard.tools.explaining.facts import (
    LARGE_SHARE,
    PACE,
    WORTH_MENTIONING_MS,
    Document,
    Facts,
    count_of,
    queue_ms,
)

#: Maximum wait for a batch, as a multiple of max_queue_delay_microseconds; longer waits have
#: another cause.
_DELAYED = 1.5
_INSTANCES = "They wait for an instance, which more of them or larger batches make shorter."
_HAVE_SLOTS = "sequences in progress have all slots"
_SLOTS = (
    "Clients end a sequence by the flag END; max_sequence_idle_microseconds in config.pbtxt ends "
    "one that is idle. More instances have more slots."
)


def find_waits(facts: Facts, row: Document) -> Iterator[Finding]:
    if row.get("pending") and any(q["quota"] == PACE for q in facts.rows("quotas")):
        return  # the quota is told
    if facts.hanging(row) or facts.stands_still(row):
        return  # so is that
    if facts.waits_for_stream(row):
        yield _full_streams(facts, row, row["streams"])
    elif facts.waits_for_slot(row):
        waiting = count_of(row["pending"], "request")
        yield warning(
            f"{waiting} in its queue, though it executes nothing: {_HAVE_SLOTS}",
            _SLOTS,
            *facts.scale_commands(row),
        )
    else:
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
    batching = facts.config.get("dynamic_batching", {})
    delay_ms = int(batching.get("max_queue_delay_microseconds", 0)) / 1e3
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
    elif waited_ms < _DELAYED * delay_ms:
        where = f"in the queue, for others in their batch ({delay_ms:g} ms at most)"
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


def find_slowest_step(facts: Facts) -> Iterator[Finding]:
    """Name the step of an ensemble that takes the most time."""
    if step := facts.slowest_step:
        yield note(
            f"its slowest step is '{step.model}': a request to it takes {step.whole_ms:.1f} ms, "
            f"{step.queue_ms:.1f} ms of that in the queue",
            "",
            f"zmqtriton-ctl explain {shlex.quote(step.model)}",
        )
