"""Explanations of a model's work: why requests wait, by kind of model, and instances' cost."""

from __future__ import annotations

from collections.abc import Iterator

from zmqtriton.sdk.models import AnswerReader, Facts, Finding
from zmqtriton_extras.inspection.explaining.batches import find_small_batches
from zmqtriton_extras.inspection.explaining.costs import find_costs, find_growth, find_kept
from zmqtriton_extras.inspection.explaining.reading import AtWork, ask
from zmqtriton_extras.inspection.explaining.waits import (
    find_failing_callees,
    find_slowest_step,
    find_stops,
    find_waits,
)


def read(reader: AnswerReader, facts: Facts) -> AtWork:
    """Ask the server about a model at work."""
    return ask(reader, facts)


def findings(facts: Facts, state: AtWork) -> Iterator[Finding]:
    """Tell of memory that grows, of callees that fail, and why requests wait."""
    yield from find_growth(facts)
    if stops := find_stops(facts):
        yield from stops
        return
    for row in facts.rows("counts"):
        yield from find_failing_callees(facts, row)
        yield from find_waits(facts, state, row)


def notes(facts: Facts, state: AtWork) -> Iterator[Finding]:
    """Tell the cost of instances, the reason for small batches, and the slowest step."""
    yield from find_costs(facts, state.memory)
    if not facts.is_overview:
        yield from find_kept(facts)
        yield from find_slowest_step(facts, state)
        yield from find_small_batches(facts)
