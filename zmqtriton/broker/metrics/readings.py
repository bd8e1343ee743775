"""The growth of models' counters since the last question, for the history of the metrics process.

Asked every few seconds, so a model about which there is no news costs next to nothing.
"""

from __future__ import annotations

from collections import deque
from math import ceil
from operator import sub
from typing import Any, NamedTuple

from zmqtriton.broker.metrics.statistics import MAX_LATENCIES, ModelStatistics
from zmqtriton.broker.scheduling.generation import Generation
from zmqtriton.broker.scheduling.generations import GenerationRegistry

_MAX_REMOVED = 256


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


_NO_COUNTERS = _Counters()


class Readings:
    def __init__(self, generations: GenerationRegistry) -> None:
        self._generations = generations
        #: Not by numbers: a generation that was given up comes back with its own, and no counts.
        self._counters: dict[Generation, _Counters] = {}
        self._asked_ns = 0
        #: Those that were removed since the last question. Bounded: whoever asks may have gone.
        self._removed: deque[Generation] = deque(maxlen=_MAX_REMOVED)

    def generation_removed(self, generation: Generation) -> None:
        """Take note that a generation is gone, and had perhaps failed for that reason."""
        if self._asked_ns:
            self._removed.append(generation)

    def document(self, now_ns: int) -> dict[str, Any]:
        """Return the growth since the last question, and how long ago that was.

        Generations that have answered nothing since, and wait for nothing, are left out. The first
        question only begins.
        """
        seconds = (now_ns - self._asked_ns) / 1e9 if self._asked_ns else 0.0
        earlier, self._counters, self._asked_ns = self._counters, {}, now_ns
        rows = []
        for generation in (*self._generations.by_number.values(), *self._removed):
            counters = generation.statistics
            before = earlier.get(generation, _NO_COUNTERS)
            has_grown = before[:2] != (counters.success.count, counters.fail.count)
            if has_grown or generation.unanswered:
                now = self._counters[generation] = _Counters.of(counters)
                pending, grown = self._pending(generation), _Counters(*map(sub, now, before))
                rows.append(_row(generation, pending, grown))
            elif generation in earlier:
                self._counters[generation] = before
                counters.latencies_mask = 0
        self._removed.clear()
        return {"seconds": seconds, "readings": rows if seconds else []}

    def _pending(self, generation: Generation) -> int:
        scheduler = self._generations.schedulers.get(generation.number)
        if scheduler is None or scheduler.generation is not generation:
            return 0  # it was removed, and has perhaps come back
        return scheduler.waiting


def _row(generation: Generation, pending: int, grown: _Counters) -> dict[str, Any]:
    counters = generation.statistics
    latencies_ns = sorted(counters.latencies_ns)
    counters.latencies_ns.clear()
    # the next interval will be as this one
    counters.latencies_mask = (1 << (grown.succeeded // MAX_LATENCIES).bit_length()) - 1
    return {
        "model": generation.model,
        "version": generation.version,
        "pending": pending,
        **grown._asdict(),
        "p50_ns": _quantile(latencies_ns, 0.5),
        "p99_ns": _quantile(latencies_ns, 0.99),
    }


def _quantile(values: list[int], share: float) -> int | None:
    """Return what this share of the sorted values does not exceed; None without values."""
    return values[ceil(share * len(values)) - 1] if values else None
