"""The load of models, for who distributes requests over servers.

Asked several times a second, so it reads a few counters of each model and none of its histograms.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from zmqtriton.broker.metrics.statistics import ModelStatistics
from zmqtriton.broker.requests.limits import MAX_UNANSWERED, Limits
from zmqtriton.broker.scheduling.generation import Generation
from zmqtriton.broker.scheduling.generations import GenerationRegistry

#: Mean times are those of so many seconds, if somebody asks as often.
WINDOW_NS = 10_000_000_000
_STEP_NS = 1_000_000_000


class _Reading(NamedTuple):
    at_ns: int
    requests: int
    queue_ns: int
    compute_ns: int


class RecentTimes:
    """The growth of a model's counters since a question some seconds ago."""

    def __init__(self) -> None:
        self._readings: deque[_Reading] = deque()

    def read(self, counters: ModelStatistics, now_ns: int) -> dict[str, int]:
        """Return the executed requests and their times; none at the first question."""
        stages = counters.compute_input, counters.compute_infer, counters.compute_output
        queue = counters.queue
        now = _Reading(now_ns, queue.count, queue.ns, sum(stage.ns for stage in stages))
        readings = self._readings
        if not readings or now_ns - readings[-1].at_ns >= _STEP_NS:
            readings.append(now)
        while len(readings) > 1 and readings[1].at_ns <= now_ns - WINDOW_NS:
            readings.popleft()
        since = readings[0]
        return {
            "requests": now.requests - since.requests,
            "queue_ns": now.queue_ns - since.queue_ns,
            "compute_ns": now.compute_ns - since.compute_ns,
        }


class LoadReports:
    def __init__(self, generations: GenerationRegistry, limits: Limits) -> None:
        self._generations = generations
        self._limits = limits
        self._recent: dict[int, RecentTimes] = {}

    def document(self, model: str, version: int, now_ns: int) -> dict[str, Any]:
        """Return the loads of a model's versions that serve, or of all models without a name."""
        limits = self._limits
        chosen = [g for g in self._generations.choose(model, version) if not g.is_retired]
        loads = [self._load(generation, now_ns) for generation in chosen]
        if not model:
            self._recent = {g.number: self._recent[g.number] for g in chosen}
        limit = limits.max_requests if limits.max_requests < MAX_UNANSWERED else 0
        return {"loads": loads, "unanswered": limits.unanswered, "limit": limit}

    def _load(self, generation: Generation, now_ns: int) -> dict[str, Any]:
        scheduler = self._generations.schedulers[generation.number]
        ready = [one for one in scheduler.instances.values() if one.is_open]
        waiting = scheduler.waiting
        recent = self._recent.setdefault(generation.number, RecentTimes())
        return {
            "name": generation.model,
            "version": generation.version,
            "is_ensemble": generation.plan is not None,
            "queued": waiting,
            "executing": max(0, generation.unanswered - waiting),
            "unanswered": generation.unanswered,
            "limit": self._limits.max_of(generation),
            "ready": len(ready),
            "instances": 0 if generation.plan is not None else generation.expected,
            "slots": sum(one.concurrency for one in ready),
            "busy_slots": sum(min(one.batch_count, one.concurrency) for one in ready),
            **recent.read(generation.statistics, now_ns),
        }
