"""Answers to AskStatistics, from the counters of generations and of the broker itself."""

from __future__ import annotations

import json
from typing import Any

from zmqtriton.broker.memory.blocks import Blocks
from zmqtriton.broker.memory.cache_lookup import CacheLookup
from zmqtriton.broker.metrics.load_reports import LoadReports
from zmqtriton.broker.metrics.model_metrics import ModelMetrics
from zmqtriton.broker.metrics.readings import Readings
from zmqtriton.broker.metrics.traffic import Traffic
from zmqtriton.broker.peers import Peer
from zmqtriton.broker.requests.limits import Limits
from zmqtriton.broker.scheduling.generation import Generation
from zmqtriton.broker.scheduling.generations import GenerationRegistry
from zmqtriton.broker.scheduling.rate_limiter import RateLimiter
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument


class Reports:
    def __init__(
        self,
        peers: dict[int, Peer],
        generations: GenerationRegistry,
        *,
        traffic: Traffic,
        limits: Limits,
        blocks: Blocks,
        cache_lookup: CacheLookup,
        rate_limiter: RateLimiter,
        model_metrics: ModelMetrics,
    ) -> None:
        self._peers = peers
        self._generations = generations
        self._traffic = traffic
        self._limits = limits
        self._blocks = blocks
        self._cache_lookup = cache_lookup
        self._rate_limiter = rate_limiter
        self._model_metrics = model_metrics
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
        entries = [
            g.statistics.as_dict(g.model, g.version, g.waiting, wall_offset_ns) for g in chosen
        ]
        for generation, entry in zip(chosen, entries, strict=True):
            sequences, last_ns = generation.sequences, generation.statistics.last_arrival_ns
            entry["zmqtriton"]["sequences"] = 0 if sequences is None else sequences.count
            entry["zmqtriton"]["last_arrival_ns"] = last_ns
            entry["zmqtriton"] |= _occupancy(generation, now_ns)
            if generation.pace is not None:
                entry["zmqtriton"]["pace"] = generation.pace.report(now_ns)
        own: dict[str, Any] = {
            "malformed": self._traffic.malformed + self._blocks.forged,
            "leases": self._blocks.leases.count,
            "received_bytes": self._traffic.received_bytes,
            "sent_bytes": self._traffic.sent_bytes,
            "resources": self._rate_limiter.report(),
            "refused": self._limits.refused,
            "unanswered": self._limits.unanswered,
            "in_flight": _in_flight(self._generations),
            "unconnected": [serial for serial, peer in self._peers.items() if peer.is_awaited],
            **self._cache_lookup.report(),
        }
        document: dict[str, Any] = {"model_stats": entries, "zmqtriton": own}
        peer = self._peers.get(serial)
        if peer is not None and peer.role == "metrics":
            document["measures"] = self._model_metrics.page()
        return wire.Statistics(message.id, 0, "", json.dumps(document))

    def _why_uncounted(self, model: str) -> str:
        """Return Triton's words for a model, or a version of it, that does not serve."""
        if any(not generation.is_retired for generation in self._generations.choose(model, -1)):
            return f"requested model version is not available for model '{model}'"
        return f"requested model '{model}' is not available"


def _in_flight(generations: GenerationRegistry) -> dict[str, int]:
    """Return how many requests each instance has that is not idle, by serial number."""
    return {
        str(instance.serial): len(instance.open_requests)
        for generation in generations.by_number.values()
        for instance in generation.instances.values()
        if instance.open_requests
    }


def _occupancy(generation: Generation, now_ns: int) -> dict[str, int]:
    present = [one for one in generation.instances.values() if one.has_arrived]
    return {
        "unanswered": generation.unanswered,
        "instances": len(present),
        "busy_ns": generation.busy_ns + sum(one.busy_ns(now_ns) for one in present),
    }
