"""Explanations of what a model does: why requests wait, by its kind, and what instances cost."""

from __future__ import annotations

from collections.abc import Iterator

from zmqtriton.findings import Finding
from zmqtriton_extras.inspection.explaining.batches import find_small_batches
from zmqtriton_extras.inspection.explaining.costs import find_costs, find_growth, read_costs
from zmqtriton_extras.inspection.explaining.sharing import Memory
from zmqtriton_extras.inspection.explaining.waits import find_slowest_step, find_waits
from zmqtriton_standard.tools.explaining.facts import Facts, Reader


def read(reader: Reader, facts: Facts) -> Memory | None:
    """Return the memory of the model's instances, where this machine can read it."""
    return None if facts.is_overview else read_costs(facts, reader.latest.get("processes", {}))


def findings(facts: Facts, memory: Memory | None) -> Iterator[Finding]:
    """Tell of memory that grows, and why requests wait."""
    yield from find_growth(facts)
    for row in facts.rows("counts"):
        yield from find_waits(facts, row)


def notes(facts: Facts, memory: Memory | None) -> Iterator[Finding]:
    """Tell the cost of instances, the reason for small batches, and the slowest step."""
    yield from find_costs(facts, memory)
    if not facts.is_overview:
        yield from find_slowest_step(facts)
        yield from find_small_batches(facts)
