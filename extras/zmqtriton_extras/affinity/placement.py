"""Gives each request to the instance of its number, or to the idlest if that one is too busy.

A request is assigned when an instance is free, not when the request arrives: until then it stays in
the model's one queue, with all its rules, and nothing must be moved when an instance dies or
starts.
"""

from __future__ import annotations

from collections.abc import Iterable

from zmqtriton.sdk.broker import InflightRequest, Instance, Placement, Scheduler
from zmqtriton.sdk.models import config_parameter
from zmqtriton.sdk.wire import errors, wire
from zmqtriton_extras.affinity.rule import (
    AFFINITY,
    Rule,
    busier_by,
    number_of,
    parse,
    value_in,
    weight,
)

#: The instances of this many numbers are remembered.
_MAX_HOMES = 10_000
#: Value for a request without a number, once it was looked for.
_NO_NUMBER = -1
HITS, MISSES = "affinity_hits", "affinity_misses"


def placement_of(scheduler: Scheduler) -> Placement | None:
    """Return the placement for a scheduler that is still empty; None without a rule."""
    config = scheduler.generation.config
    rule = parse(config_parameter(config, AFFINITY))
    if rule is None:
        return None
    return AffinePlacement(scheduler, rule, busier_by(config), _most_at_once(config))


def _most_at_once(config: dict[str, object]) -> int:
    size = config.get("max_batch_size")
    return size if "dynamic_batching" in config and isinstance(size, int) and size else 1


class AffinePlacement(Placement):
    """The instances of one model, chosen by what requests have in common."""

    def __init__(self, scheduler: Scheduler, rule: Rule, busier_by: int, most_at_once: int) -> None:
        super().__init__(
            scheduler.instances,
            ahead=scheduler.placement.ahead,
            has_concurrent_batches=True,
            notes_idle=False,
        )
        self._queue = scheduler.queue
        self._rule = rule
        self._busier_by = busier_by
        #: Maximum number of requests in a batch.
        self._most_at_once = most_at_once
        self._homes: dict[int, Instance] = {}
        #: The instances among which homes were chosen.
        self._ready: frozenset[Instance] = frozenset()
        self.counts = {HITS: 0, MISSES: 0}

    def take_instance(self, waiting: int, now_ns: int) -> Instance | None:
        loads = {one: len(one.open_requests) for one in self.instances.values() if one.is_open}
        if len(loads) < 2:
            return self._take_only(loads, waiting, now_ns)
        if self._ready != loads.keys():
            self._ready = frozenset(loads)
            self._homes.clear()
        self.ahead.due_ns = 0
        shares = self._deal(loads)
        # a full one first: of the others not all was looked at
        for instance in sorted(shares, key=lambda one: -len(shares[one])):
            share = shares[instance]
            batch = self._queue.choose(share, now_ns)
            if batch:
                self.share = batch
                self._count(instance, batch)
                return instance
            due_ns = self._queue.due_ns
            if due_ns and (not self.ahead.due_ns or due_ns < self.ahead.due_ns):
                self.ahead.due_ns = due_ns
        return None

    def _take_only(self, loads: Iterable[Instance], waiting: int, now_ns: int) -> Instance | None:
        """Take the one instance if it can start the queue's first batch, or nothing."""
        free = [one for one in loads if one.startable_batches > 0]
        instance = free[0] if free else self.ahead.target(self.instances, waiting, now_ns)
        if instance is None:
            return None
        self.share = self._queue.choose(self._queue.levels, now_ns)
        self.ahead.due_ns = self._queue.due_ns
        self.counts[HITS] += sum(request.placement > 0 for request in self.share)
        return instance if self.share else None

    def _deal(self, loads: dict[Instance, int]) -> dict[Instance, list[InflightRequest]]:
        """Return the requests for each free instance, up to the first instance that is full.

        `loads` has the open requests of each instance, and gets the assigned ones as well. Busy
        instances also get parts, until they are too busy, so that a long queue is not read to its
        end.
        """
        shares: dict[Instance, list[InflightRequest]]
        shares = {one: [] for one in loads if one.startable_batches > 0}
        for request in self._queue.levels if shares else ():
            idlest = min(loads, key=loads.__getitem__)
            number = self._number(request)
            home = self._home(number) if number > 0 else idlest
            chosen = home if loads[home] - loads[idlest] < self._busier_by else idlest
            loads[chosen] += 1
            if chosen in shares:
                shares[chosen].append(request)
                if len(shares[chosen]) >= self._most_at_once:
                    break
        return shares

    def _number(self, request: InflightRequest) -> int:
        """Return the number of a request; if a model sent it, no frontend has computed one.

        It is computed from the request's own parameter or input, or else is the number of the
        request that caused it.
        """
        if not request.placement and request.flags & wire.UNCHECKED:
            number = self._number_in(request.body)
            asked_for = request.caller_peer, request.caller_id
            for one in request.caller.requests if request.caller else ():
                if one.key == asked_for:
                    number = number or one.placement
            request.placement = number or _NO_NUMBER
        return request.placement

    def _number_in(self, body: bytes) -> int:
        try:
            value = value_in(self._rule, wire.decode_request(body))
        except errors.ProtocolError:
            return 0  # the stub will refuse it
        return 0 if value is None else number_of(value)

    def _home(self, number: int) -> Instance:
        home = self._homes.get(number)
        if home is None:
            if len(self._homes) >= _MAX_HOMES:
                self._homes.clear()
            home = max(self._ready, key=lambda one: (weight(number, one.name), one.serial))
            self._homes[number] = home
        return home

    def _count(self, instance: Instance, batch: list[InflightRequest]) -> None:
        for request in batch:
            if request.placement > 0:
                is_hit = self._home(request.placement) is instance
                self.counts[HITS if is_hit else MISSES] += 1
