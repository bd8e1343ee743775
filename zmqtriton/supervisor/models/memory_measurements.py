"""Measurements of the memory of models' processes. Does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from zmqtriton.supervisor.actions import MeasureMemory
from zmqtriton.supervisor.plan import Plan


class MemoryReport(NamedTuple):
    """The memory of each model's processes, and what the machine has left."""

    by_model: Mapping[str, int]
    available_bytes: int


def measure_memory(
    plan: Plan, model_by_pid: Mapping[int, str], then: Callable[[MemoryReport], None]
) -> None:
    """Have these processes measured; `then` gets the sums."""
    plan.enqueue(MeasureMemory(plan.expect(then), dict(model_by_pid)))
