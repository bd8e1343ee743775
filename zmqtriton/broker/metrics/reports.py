"""Answers to questions about counters of generations, and of the broker: all, loads, growth."""

from __future__ import annotations

import json
from collections import deque
from math import ceil
from operator import sub
from typing import Any, NamedTuple

from zmqtriton.broker.memory.cache_lookup import CacheLookup
from zmqtriton.broker.metrics.model_metrics import ReportedMetrics
from zmqtriton.broker.metrics.statistics import MAX_LATENCIES, ModelStatistics
from zmqtriton.broker.requests.limits import MAX_UNANSWERED, Limits
from zmqtriton.broker.scheduling.batching import BatchingQueue
from zmqtriton.broker.scheduling.generation import BrokerGeneration
from zmqtriton.broker.scheduling.generations import GenerationRegistry
from zmqtriton.broker.scheduling.instances import Instance
from zmqtriton.broker.scheduling.rate_limiter import RateLimiter
from zmqtriton.broker.scheduling.scheduler import Scheduler
from zmqtriton.broker.state import BrokerPart, BrokerState
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument

#: Maximum length of an error in the reports: its beginning says what it is.
_MAX_ERROR = 2000
#: Interval of mean times, if questions come at least this often.
WINDOW_NS = 10_000_000_000
_STEP_NS = 1_000_000_000
_MAX_REMOVED = 256


class MetricReports(BrokerPart):
    def __init__(
        self,
        state: BrokerState,
        cache_lookup: CacheLookup,
        rates: RateLimiter,
        metrics: ReportedMetrics,
    ) -> None:
        super().__init__(state)
        self._cache_lookup = cache_lookup
        self._rates = rates
        self._metrics = metrics
        self._loads = LoadReports(self._generations, self._limits)
        self._readings = Readings(self._generations)
        self.generation_removed = self._readings.generation_removed

    def answer(
        self, message: wire.AskStatistics, wall_offset_ns: int, now_ns: int = 0
    ) -> wire.CallResult:
        """Return the counters that a peer asks for, or Triton's error for an unknown model.

        Counters that belong to no model are included; models' own metrics only for a process that
        makes a metrics page.
        """
        if message.kind == wire.LOAD:
            loads = self._loads.document(message.model, message.version, now_ns)
            return wire.CallResult(message.id, 0, "", json.dumps(loads))
        if message.kind == wire.READINGS:
            return wire.CallResult(message.id, 0, "", json.dumps(self._readings.document(now_ns)))
        chosen = self._generations.choose(message.model, message.version)
        if message.model:
            # An unloaded one finishes what it has, and is nobody's any more.
            chosen = [generation for generation in chosen if not generation.is_retired]
        if message.model and not chosen:
            others = self._generations.choose(message.model, -1)
            text = f"requested model '{message.model}' is not available"
            if any(not generation.is_retired for generation in others):
                text = f"requested model version is not available for model '{message.model}'"
            return wire.CallResult(message.id, InvalidArgument.number, text, "")
        schedulers = [self._schedulers[generation.number] for generation in chosen]
        entries = [_entry(scheduler, wall_offset_ns, now_ns) for scheduler in schedulers]
        own: dict[str, Any] = {
            "malformed": self._traffic.malformed + self._blocks.forged,
            "turns": self._traffic.turns,
            "leases": self._blocks.leases.count,
            "held": self._blocks.leases.sizes(),
            "received_bytes": self._traffic.received_bytes,
            "sent_bytes": self._traffic.sent_bytes,
            "resources": self._rates.report(),
            "refused": self._limits.refused,
            "tokens": self._limits.tokens.report(),
            "unanswered": self._limits.unanswered,
            "in_flight": {
                str(one.serial): len(one.open_requests)
                for one in self._instances.values()
                if one.open_requests
            },
            "execution_ages_ns": {
                str(one.serial): age_ns
                for one in self._instances.values()
                if (age_ns := execution_age_ns(one, now_ns))
            },
            "unconnected": [
                serial
                for serial, peer in self._peers.items()
                if not (peer.is_connected or peer.has_resent)
            ],
            **self._cache_lookup.report(),
        }
        document: dict[str, Any] = {"model_stats": entries, "zmqtriton": own}
        if message.kind == wire.PAGE:
            document["measures"] = self._metrics.page()
        return wire.CallResult(message.id, 0, "", json.dumps(document))


def _entry(scheduler: Scheduler, wall_offset_ns: int, now_ns: int) -> dict[str, Any]:
    """Return the entry of a generation in `model_stats`."""
    generation, waiting = scheduler.generation, scheduler.waiting
    counters, model, version = generation.statistics, generation.model, generation.version
    text, failed_ns = counters.last_error
    last_error = {"text": text[:_MAX_ERROR], "at_s": (failed_ns + wall_offset_ns) / 1e9}
    ages = [execution_age_ns(one, now_ns) for one in scheduler.instances.values()]
    present = [one for one in scheduler.instances.values() if one.has_arrived]
    #: Figures that the protocol has no field for; None leaves a figure out.
    own = {
        "sequences": scheduler.sequence_count,
        "last_error": last_error if text else None,
        "overdue": counters.overdue.as_dict(wall_offset_ns) if counters.overdue.count else None,
        "last_arrival_ns": counters.last_arrival_ns,
        "unanswered": generation.unanswered,
        "instances": len(present),
        "busy_ns": generation.busy_ns + sum(one.busy_ns(now_ns) for one in present),
        **scheduler.placement.counts,
        "oldest_execution_ns": max(ages, default=0) or None,
        "usual_execution_ns": scheduler.placement.ahead.mean_ns or None,
        "calls": sorted(generation.calls) or None,
        "executing_ns": None if counters.trial is None else _executing_ns(scheduler, now_ns),
        "streams": _streams(scheduler) if generation.max_streams else None,
        "batching": _batching(scheduler) or None,
        "pace": None if scheduler.rate is None else scheduler.rate.report(now_ns),
    }
    entry = counters.as_dict(model, version, waiting, wall_offset_ns)
    entry["zmqtriton"] |= {name: value for name, value in own.items() if value is not None}
    return entry


def _batching(scheduler: Scheduler) -> dict[str, Any]:
    """Return figures about how full batches are; empty for a model without batches."""
    generation = scheduler.generation
    if scheduler.sequences is not None and not generation.is_iterative:
        counters = generation.statistics
        return {
            "target": int(generation.config.get("max_batch_size", 0)),
            "batches": counters.execution_count,
            "elements": counters.inference_count,
        }
    return scheduler.queue.report() if isinstance(scheduler.queue, BatchingQueue) else {}


def execution_age_ns(instance: Instance, now_ns: int) -> int:
    """Return the age of an instance's oldest execution in ns; 0 if it executes nothing."""
    if instance.concurrency == 1 or not instance.batches:
        return instance.busy_ns(now_ns)
    return max(0, now_ns - min(batch.dispatched_ns for batch in instance.batches.values()))


def _executing_ns(scheduler: Scheduler, now_ns: int) -> list[tuple[int, int]]:
    """Return the ages of the oldest and newest execution of each instance; 0 if it is idle."""
    ages = []
    for instance in scheduler.instances.values():
        begins = [batch.dispatched_ns for batch in instance.batches.values()]
        begins += [request.dispatched_ns for request in instance.open_requests.values()]
        begins = [ns for ns in begins if ns]  # an earlier broker has dispatched the others
        if instance.has_arrived:
            begins = begins or [now_ns]
            ages.append((max(0, now_ns - min(begins)), max(0, now_ns - max(begins))))
    return ages


def _streams(scheduler: Scheduler) -> dict[str, int]:
    """Return the open requests of the instances, the room for more, and the limit of each."""
    present = [one for one in scheduler.instances.values() if one.is_open]
    return {
        "open": sum(len(one.open_requests) for one in present),
        "room": sum(one.streams.room(one) for one in present if one.streams is not None),
        "limit": scheduler.generation.max_streams,
    }


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
        queue, compute = counters.queue, counters.compute
        compute_ns = compute.input_ns + compute.infer_ns + compute.output_ns
        now = _Reading(now_ns, queue.count, queue.ns, compute_ns)
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
    """The load of models, for processes that distribute requests over servers.

    It is requested several times a second, so it reads a few counters of each model and none of its
    histograms.
    """

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

    def _load(self, generation: BrokerGeneration, now_ns: int) -> dict[str, Any]:
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
    """The growth of models' counters since the last question, for the history.

    It is requested every few seconds, so a model without news costs next to nothing.
    """

    def __init__(self, generations: GenerationRegistry) -> None:
        self._generations = generations
        #: Counters at the last question, by generation. Its number is no key: a generation that was
        #: given up comes back under the same one, and has no counts.
        self._counters: dict[BrokerGeneration, _Counters] = {}
        self._asked_ns = 0
        #: Generations that were removed since the last question. Their number is bounded, since the
        #: process that asks may have gone.
        self._removed: deque[BrokerGeneration] = deque(maxlen=_MAX_REMOVED)

    def generation_removed(self, generation: BrokerGeneration) -> None:
        """Keep a removed generation for the next question: its removal may have failed requests."""
        if self._asked_ns:
            self._removed.append(generation)

    def document(self, now_ns: int) -> dict[str, Any]:
        """Return the growth since the last question, and the seconds since then.

        Generations without new answers or waiting requests are left out. The first question only
        begins the counting.
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
                scheduler = self._generations.schedulers.get(generation.number)
                # a removed one has perhaps come back under its number
                is_here = scheduler is not None and scheduler.generation is generation
                pending = scheduler.waiting if scheduler is not None and is_here else 0
                rows.append(_row(generation, pending, _Counters(*map(sub, now, before))))
            elif generation in earlier:
                self._counters[generation] = before
                counters.latencies_mask = 0
        self._removed.clear()
        return {"seconds": seconds, "readings": rows if seconds else []}


def _row(generation: BrokerGeneration, pending: int, grown: _Counters) -> dict[str, Any]:
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
    """Return the quantile of sorted values for this share; None without values."""
    return values[ceil(share * len(values)) - 1] if values else None
