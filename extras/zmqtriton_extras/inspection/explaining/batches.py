"""Findings about batches that are smaller than allowed. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from zmqtriton.sdk.models import Facts, Finding, figures

#: Minimum number of batches for a finding about their size.
_MIN_BATCHES = 20
#: Share of the wanted batch size; smaller batches are reported.
_SMALL = 0.5
#: Minimum shares of the batches for a reason: parted by the shapes of requests, or complete.
_PARTED, _COMPLETE = 0.2, 0.5
#: Maximum share of the elements that is left with `BATCH_LIKE`, for a finding.
_WORTH = 0.8
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
            yield from _find_padding(facts, batching.get("estimate"))
            size = batching["elements"] / batching["batches"]
            if size < _SMALL * batching["target"]:
                text = f"its batches have {size:.3g} of {batching['target']}: "
                reason, advice = _reason(row, batching)
                yield Finding.note(text + reason, advice, f"zmqtriton-ctl stats {facts.word}")


def _find_padding(facts: Facts, estimate: Mapping[str, Any] | None) -> Iterator[Finding]:
    """Tell what padding costs, and what `BATCH_LIKE` would save by the batches that were looked at.

    The server does not know whether the model pads.
    """
    if estimate and estimate["otherwise"] < _WORTH * estimate["padded"]:
        name, real = estimate["input"], estimate["real"]
        now, then = (1 - real / estimate[key] for key in ("padded", "otherwise"))
        yield Finding.note(
            f"requests of unlike size share its batches: if it pads '{name}' to the longest, "
            f"{now:.0%} of the elements are padding",
            f'Set the parameter BATCH_LIKE: "shape({name})" in config.pbtxt to put like requests '
            f"together; padding would then be {then:.0%}.",
            f"zmqtriton-ctl stats {facts.word}",
        )


def _reason(row: Mapping[str, Any], batching: Mapping[str, Any]) -> tuple[str, str]:
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
    if batching.get("spent", 0) > _PARTED * count:
        return (
            f"{batching['spent']} of {count} ended at the budget of {batching['budget']}",
            "Raise MAX_BATCH_COST in config.pbtxt if the memory and the time of one execution "
            "allow it.",
        )
    executed = row.get("executed") or 1
    execution_ms = row.get("compute_ns", 0) / executed / 1e6
    takes_turns = Facts.queue_ms(row) - delay_us / 1e3 > _TURN * execution_ms
    if batching["complete"] > _COMPLETE * count and not takes_turns:
        reason = "most have all requests that there are, so clients send too few at the same time"
        if not delay_us:
            return reason, _MORE
        waits = figures.brief(delay_us / 1e6)
        cost = f"Until then max_queue_delay_microseconds costs each of them up to {waits}."
        return reason, f"{_MORE} {cost}"
    if "auto" in batching:
        waits = figures.brief(delay_us / 1e6) if delay_us else "no delay"
        return f"BATCH_DELAY has chosen {waits} for {batching['auto']}", _MORE
    delay = int((_LONG_DELAY if takes_turns else _SHORT_DELAY) * execution_ms * 1000)
    if delay > delay_us:
        return (
            f"max_queue_delay_microseconds is {delay_us}, and a free instance takes the few that "
            "wait",
            f"Set max_queue_delay_microseconds: {delay} in dynamic_batching, if fewer and larger "
            "batches are worth that wait; `zmqtriton simulate` compares delays.",
        )
    return f"few requests come within its max_queue_delay_microseconds of {delay_us}", _MORE


def _of_shapes(batching: Mapping[str, Any]) -> tuple[str, str]:
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
        "if execute() takes requests of several shapes. "
        'The parameter BATCH_LIKE, such as "shape(INPUT)", puts equal shapes together.'
    )
