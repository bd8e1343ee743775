"""Answers to AskStatistics, from the counters of generations and of the broker itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from zmqtriton.broker.memory.blocks import Blocks
from zmqtriton.broker.memory.cache_lookup import CacheLookup
from zmqtriton.broker.metrics.load_reports import LoadReports
from zmqtriton.broker.metrics.model_metrics import ModelMetrics
from zmqtriton.broker.metrics.readings import Readings
from zmqtriton.broker.metrics.traffic import Traffic
from zmqtriton.broker.peers import Peer
from zmqtriton.broker.requests.limits import Limits
from zmqtriton.broker.scheduling.generations import GenerationRegistry
from zmqtriton.broker.scheduling.instances import Instance
from zmqtriton.broker.scheduling.rate_limiter import RateLimiter
from zmqtriton.broker.scheduling.scheduler import Scheduler
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument

#: The begin of an error says what it is.
_MAX_ERROR = 2000


class Reports:
    def __init__(
        self,
        peers: dict[int, Peer],
        generations: GenerationRegistry,
        traffic: Traffic,
        limits: Limits,
        blocks: Blocks,
        cache_lookup: CacheLookup,
        *,
        rates: RateLimiter,
        metrics: ModelMetrics,
    ) -> None:
        self._peers = peers
        self._generations = generations
        self._schedulers = generations.schedulers
        self._traffic = traffic
        self._limits = limits
        self._blocks = blocks
        self._cache_lookup = cache_lookup
        self._rates = rates
        self._metrics = metrics
        self._loads = LoadReports(generations, limits)
        self._readings = Readings(generations)
        self.generation_removed = self._readings.generation_removed

    def answer(
        self, serial: int, message: wire.AskStatistics, wall_offset_ns: int, now_ns: int = 0
    ) -> wire.Statistics:
        """Return the counters that a peer asks for, or Triton's error for an unknown model.

        Those that belong to no model are included; metrics of models only for the process that
        makes a page of them.
        """
        if message.kind == wire.LOAD:
            loads = self._loads.document(message.model, message.version, now_ns)
            return wire.Statistics(message.id, 0, "", json.dumps(loads))
        if message.kind == wire.READINGS:
            return wire.Statistics(message.id, 0, "", json.dumps(self._readings.document(now_ns)))
        chosen = self._generations.choose(message.model, message.version)
        if message.model:
            # An unloaded one finishes what it has, and is nobody's any more.
            chosen = [generation for generation in chosen if not generation.is_retired]
        if message.model and not chosen:
            text = self._why_uncounted(message.model)
            return wire.Statistics(message.id, InvalidArgument.number, text, "")
        schedulers = [self._schedulers[generation.number] for generation in chosen]
        entries = [_entry(scheduler, wall_offset_ns, now_ns) for scheduler in schedulers]
        own: dict[str, Any] = {
            "malformed": self._traffic.malformed + self._blocks.forged,
            "turns": self._traffic.turns,
            "leases": self._blocks.leases.count,
            "received_bytes": self._traffic.received_bytes,
            "sent_bytes": self._traffic.sent_bytes,
            "resources": self._rates.report(),
            "refused": self._limits.refused,
            "tokens": self._limits.tokens.report(),
            "unanswered": self._limits.unanswered,
            "in_flight": _in_flight(self._schedulers),
            "execution_ages_ns": _execution_ages(self._schedulers, now_ns),
            "unconnected": [serial for serial, peer in self._peers.items() if peer.is_awaited],
            **self._cache_lookup.report(),
        }
        document: dict[str, Any] = {"model_stats": entries, "zmqtriton": own}
        peer = self._peers.get(serial)
        if peer is not None and peer.role == "metrics":
            document["measures"] = self._metrics.page()
        return wire.Statistics(message.id, 0, "", json.dumps(document))

    def _why_uncounted(self, model: str) -> str:
        """Return Triton's words for a model, or a version of it, that does not serve."""
        if any(not generation.is_retired for generation in self._generations.choose(model, -1)):
            return f"requested model version is not available for model '{model}'"
        return f"requested model '{model}' is not available"


def _entry(scheduler: Scheduler, wall_offset_ns: int, now_ns: int) -> dict[str, Any]:
    """Return the entry of a generation in `model_stats`."""
    generation, waiting = scheduler.generation, scheduler.waiting
    counters, model, version = generation.statistics, generation.model, generation.version
    entry = counters.as_dict(model, version, waiting, wall_offset_ns)
    entry["zmqtriton"]["sequences"] = scheduler.sequence_count
    text, failed_ns = counters.last_error
    if text:
        error = {"text": text[:_MAX_ERROR], "at_s": (failed_ns + wall_offset_ns) / 1e9}
        entry["zmqtriton"]["last_error"] = error
    if counters.overdue.count:
        entry["zmqtriton"]["overdue"] = counters.overdue.as_dict(wall_offset_ns)
    entry["zmqtriton"]["last_arrival_ns"] = counters.last_arrival_ns
    entry["zmqtriton"] |= _occupancy(scheduler, now_ns)
    ages = [execution_age_ns(one, now_ns) for one in scheduler.instances.values()]
    if oldest_ns := max(ages, default=0):
        entry["zmqtriton"]["oldest_execution_ns"] = oldest_ns
    if usual_ns := scheduler.placement.usual_execution_ns:
        entry["zmqtriton"]["usual_execution_ns"] = usual_ns
    if counters.trial is not None:
        entry["zmqtriton"]["executing_ns"] = _executing_ns(scheduler, now_ns)
    if scheduler.rate is not None:
        entry["zmqtriton"]["pace"] = scheduler.rate.report(now_ns)
    return entry


def _in_flight(schedulers: Mapping[int, Scheduler]) -> dict[str, int]:
    """Return how many requests each instance has that is not idle, by serial number."""
    return {
        str(instance.serial): len(instance.open_requests)
        for scheduler in schedulers.values()
        for instance in scheduler.instances.values()
        if instance.open_requests
    }


def execution_age_ns(instance: Instance, now_ns: int) -> int:
    """Return how long the oldest execution of an instance has lasted; 0 if it executes nothing."""
    if instance.concurrency == 1 or not instance.batches:
        return instance.busy_ns(now_ns)
    return max(0, now_ns - min(batch.dispatched_ns for batch in instance.batches.values()))


def _execution_ages(schedulers: Mapping[int, Scheduler], now_ns: int) -> dict[str, int]:
    """Return for how long each instance that executes has done so, by serial number."""
    return {
        str(instance.serial): age_ns
        for scheduler in schedulers.values()
        for instance in scheduler.instances.values()
        if (age_ns := execution_age_ns(instance, now_ns))
    }


def _executing_ns(scheduler: Scheduler, now_ns: int) -> list[tuple[int, int]]:
    """Return the ages of the oldest and the newest execution of each instance, 0 of idle ones."""
    ages = []
    for instance in scheduler.instances.values():
        begins = [batch.dispatched_ns for batch in instance.batches.values()]
        begins += [request.dispatched_ns for request in instance.open_requests.values()]
        begins = [ns for ns in begins if ns]  # an earlier broker has dispatched the others
        if instance.has_arrived:
            begins = begins or [now_ns]
            ages.append((max(0, now_ns - min(begins)), max(0, now_ns - max(begins))))
    return ages


def _occupancy(scheduler: Scheduler, now_ns: int) -> dict[str, int]:
    generation = scheduler.generation
    present = [one for one in scheduler.instances.values() if one.has_arrived]
    return {
        "unanswered": generation.unanswered,
        "instances": len(present),
        "busy_ns": generation.busy_ns + sum(one.busy_ns(now_ns) for one in present),
    }
