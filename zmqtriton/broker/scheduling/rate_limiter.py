"""The rate limiter: the order of instances that share resources, and which may begin a batch.

The instance that has used least is first: each execution costs it as many points as its priority
says. An instance that has to wait for a resource reserves the free part of it, so that many small
demands cannot starve a large one; instances that need other resources continue. Who holds a
resource is computed from the executions, so nothing can be lost or given back twice. Asked by
`dispatch`; knows neither queues nor clocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from zmqtriton.broker.requests.inflight import InflightRequest, RequestState
from zmqtriton.broker.scheduling.generation import BrokerGeneration
from zmqtriton.broker.scheduling.instances import Instance, RateLimiterMember
from zmqtriton.broker.scheduling.scheduler import Scheduler
from zmqtriton.config.resources import NO_DEVICE, ResourceKey, ResourceNeed, ResourcePool
from zmqtriton_floor.execution_progress import RequestKey
from zmqtriton_floor.settings.broker import RateLimits

_NOTHING = ResourceNeed({}, 1)


class RateLimiter:
    def __init__(
        self, schedulers: Mapping[int, Scheduler], awaited: Mapping[RequestKey, InflightRequest]
    ) -> None:
        """Set up; models may wait for the requests in `awaited`, and hold what others need."""
        self._schedulers = schedulers
        self._awaited = awaited
        self._supply = ResourcePool(RateLimits())
        #: Schedulers whose instances wait for their turn, by generation number.
        self.limited: dict[int, Scheduler] = {}
        self._counter = itertools.count(1)
        #: Points of the member that was chosen last. A new or idle member begins with as many, so
        #: that it has no advantage over the others.
        self._points = 0

    def configure(self, limits: RateLimits) -> None:
        self._supply = ResourcePool(limits)

    def join(self, instance: Instance, scheduler: Scheduler, demand: str) -> None:
        """Add an instance before it gets any batch.

        If no instance of a model has a demand, none is restricted; if one has a demand, even the
        others take turns.
        """
        if demand and not scheduler.placement.is_limited:
            scheduler.placement.limit()
            self.limited[scheduler.generation.number] = scheduler
            for other in scheduler.instances.values():
                other.membership = RateLimiterMember(_NOTHING, self.blockers, self._points)
        if scheduler.placement.is_limited:
            needs = ResourceNeed.from_json(demand) if demand else _NOTHING
            instance.membership = RateLimiterMember(needs, self.blockers, self._points)

    # -------------------------------------------------------------- choosing

    def candidates(self, now_ns: int) -> Iterator[tuple[Scheduler, Instance]]:
        """Return the members that may begin a batch now, in their order.

        Call this again after one has begun.
        """
        free = self._free()
        #: Resources that are kept free for one batch of a scheduler. One is enough: the scheduler
        #: may have no more, and any of its instances may take it.
        kept: dict[Scheduler, ResourceNeed] = {}
        for scheduler, instance, membership in self._in_order():
            needs = membership.resource_need.amounts.items()
            others = [demand for keeper, demand in kept.items() if keeper is not scheduler]
            is_free = all(free[key] >= count for key, count in needs)
            is_kept = any(
                free[key] - sum(other.amounts.get(key, 0) for other in others) < count
                for key, count in needs
            )
            if is_free and (not is_kept or self._is_urgent(scheduler.generation)):
                yield scheduler, instance
            elif scheduler not in kept and scheduler.has_ready(instance, now_ns):
                kept[scheduler] = membership.resource_need

    def _is_urgent(self, generation: BrokerGeneration) -> bool:
        """True if a model may wait for a queued request of this generation."""
        queued = RequestState.QUEUED
        return any(r.generation is generation and r.state is queued for r in self._awaited.values())

    def began(self, instance: Instance) -> None:
        membership = instance.membership
        if membership is not None:
            self._points = max(self._points, membership.points)
            membership.points += membership.resource_need.priority

    def _in_order(self) -> list[tuple[Scheduler, Instance, RateLimiterMember]]:
        waiting = []
        for scheduler, instance, membership in self._members():
            if not scheduler.pending:
                membership.waits_since = 0
                continue
            if not membership.waits_since:
                membership.waits_since = next(self._counter)
                membership.points = max(membership.points, self._points)
            if instance.free_slots > 0:
                waiting.append((scheduler, instance, membership))
        waiting.sort(key=lambda one: (one[2].points, one[2].waits_since))
        return waiting

    def _members(self) -> Iterator[tuple[Scheduler, Instance, RateLimiterMember]]:
        for number, scheduler in list(self.limited.items()):
            if self._schedulers.get(number) is not scheduler:
                del self.limited[number]
                continue
            for instance in scheduler.instances.values():
                if instance.membership is not None:
                    yield scheduler, instance, instance.membership

    # ------------------------------------------------------------- resources

    def _free(self) -> dict[ResourceKey, int]:
        members = list(self._members())
        free = self._supply.limits(membership.resource_need for _, _, membership in members)
        for _, instance, membership in members:
            for key, count in membership.resource_need.amounts.items():
                free[key] -= count * instance.batch_count
        return free

    def blockers(self, demand: ResourceNeed) -> list[Instance]:
        free = self._free()
        lacking = [key for key, count in demand.amounts.items() if free.get(key, 0) < count]
        return [
            instance
            for _, instance, membership in self._members()
            if instance.batch_count and lacking and lacking[0] in membership.resource_need.amounts
        ]

    def report(self) -> list[dict[str, Any]]:
        """Return the holders of resources and the instances that wait for them."""
        members = list(self._members())
        limits = self._supply.limits(membership.resource_need for _, _, membership in members)
        entries = {key: _entry(key, limit) for key, limit in sorted(limits.items())}
        for scheduler, instance, membership in members:
            for key, count in membership.resource_need.amounts.items():
                entry = entries[key]
                if instance.batch_count:
                    entry["holders"][instance.name] = count * instance.batch_count
                    entry["in_use"] += count * instance.batch_count
                elif scheduler.pending:
                    entry["waiting"].append(instance.name)
        return list(entries.values())


def _entry(key: ResourceKey, limit: int) -> dict[str, Any]:
    name, device = key
    where = None if device == NO_DEVICE else device
    return {
        "resource": name,
        "device": where,
        "count": limit,
        "in_use": 0,
        "holders": {},
        "waiting": [],
    }
