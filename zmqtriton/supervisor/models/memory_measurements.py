"""Measurements of the memory of models' processes, for whoever asks. Does no I/O."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import NamedTuple

from zmqtriton.supervisor.actions import MeasureMemory
from zmqtriton.supervisor.plan import Plan


class MemoryReport(NamedTuple):
    """The memory of each model's processes, and what the machine has left."""

    by_model: Mapping[str, int]
    available_bytes: int


class MemoryMeasurements:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._tickets = itertools.count(1)
        self._waiting: dict[int, Callable[[MemoryReport], None]] = {}

    def request(
        self, model_by_pid: Mapping[int, str], then: Callable[[MemoryReport], None]
    ) -> None:
        """Have these processes measured; `then` gets the sums."""
        ticket = next(self._tickets)
        self._waiting[ticket] = then
        self._plan.enqueue(MeasureMemory(ticket, dict(model_by_pid)))

    def on_measured(self, ticket: int, report: MemoryReport) -> None:
        """Take the answer to MeasureMemory."""
        self._waiting.pop(ticket)(report)
