"""The growth of models' counters since the last question, for the history of the metrics process.

Asked every few seconds, so a model about which there is no news costs next to nothing.
"""

from __future__ import annotations

from operator import sub
from typing import Any, NamedTuple

from zmqtriton.broker.metrics.latency_buckets import BOUNDS_NS, BUCKETS
from zmqtriton.broker.metrics.statistics import ModelStatistics
from zmqtriton.broker.scheduling.generation import Generation
from zmqtriton.broker.scheduling.generations import GenerationRegistry


class _Counters(NamedTuple):
    """The counters of a generation at the last question."""

    succeeded: int = 0
    failed: int = 0
    queued: int = 0
    queue_ns: int = 0
    inferences: int = 0
    executions: int = 0

    @classmethod
    def of(cls, counters: ModelStatistics) -> _Counters:
        return cls(
            counters.success.count,
            counters.fail.count,
            counters.queue.count,
            counters.queue.ns,
            counters.inference_count,
            counters.execution_count,
        )


_NO_COUNTERS, _NO_LATENCIES = _Counters(), [0] * BUCKETS
_Known = tuple[_Counters, list[int]]


class Readings:
    def __init__(self, generations: GenerationRegistry) -> None:
        self._generations = generations
        self._known: dict[int, _Known] = {}
        self._asked_ns = 0

    def document(self, now_ns: int) -> dict[str, Any]:
        """Return the growth since the last question, and how long ago that was.

        Generations that have answered nothing since, and wait for nothing, are left out. The first
        question only begins. `latencies` counts requests in the buckets of these bounds.
        """
        seconds = (now_ns - self._asked_ns) / 1e9 if self._asked_ns else 0.0
        known, self._known, self._asked_ns = self._known, {}, now_ns
        rows = []
        for number, generation in self._generations.by_number.items():
            counters = generation.statistics
            before = known.get(number, (_NO_COUNTERS, _NO_LATENCIES))
            has_grown = before[0][:2] != (counters.success.count, counters.fail.count)
            if has_grown or generation.unanswered:
                self._known[number] = _Counters.of(counters), [*counters.latencies]
                rows.append(_row(generation, before, self._known[number]))
            elif number in known:
                self._known[number] = before
        return {"seconds": seconds, "bounds_ns": BOUNDS_NS, "readings": rows if seconds else []}


def _row(generation: Generation, before: _Known, now: _Known) -> dict[str, Any]:
    return {
        "model": generation.model,
        "version": generation.version,
        "pending": generation.waiting,
        **dict(zip(_Counters._fields, map(sub, now[0], before[0]), strict=True)),
        "latencies": [*map(sub, now[1], before[1])],
    }
