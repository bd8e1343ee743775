"""Promises that a broker keeps whatever happens, each checked from outside after each event.

One answer to each request; first come, first served within a priority, and no lower one before a
higher; sequences in their order, one request at a time; no batch above its size; no resource used
beyond what there is; nobody idle while there is something to execute. For days.py.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton.broker.scheduling.instances import Instance
from zmqtriton.broker.scheduling.scheduler import Scheduler
from zmqtriton.broker.sequences.controls import FIRST_PADDING_ID
from zmqtriton.config.resources import ResourceKey, ResourceNeed, ResourcePool
from zmqtriton_floor import wire
from zmqtriton_floor.settings.broker import BrokerSettings

if TYPE_CHECKING:
    from tests.broker.simulation.days import CheckedHarness

RequestKey = tuple[int, int]
#: A model's name: another generation may go on with those of the one before.
SequenceKey = tuple[str, int | str]


class ExpectedModel:
    """A generation, as its configuration says it should behave."""

    def __init__(self, number: int, config: dict[str, Any]) -> None:
        batching = config.get("dynamic_batching")
        sequences = config.get("sequence_batching", {})
        strategy = sequences.get("direct") or sequences.get("oldest") or {}
        self.number = number
        self.name: str = config["name"]
        self.max_batch_size: int = config["max_batch_size"]
        self.is_ensemble = "ensemble_scheduling" in config
        self.is_iterative = bool(sequences.get("iterative_sequence"))
        self.is_sequential = bool(sequences) and not self.is_iterative
        self.is_decoupled = "model_transaction_policy" in config and not self.is_ensemble
        #: How much is executed together at most; in sequences, of how many.
        self.batch_capacity = self.max_batch_size if batching is not None or sequences else 0
        self.delay_ns = int((batching or strategy).get("max_queue_delay_microseconds", 0)) * 1000
        self.levels = (batching or {}).get("priority_levels", 0)
        #: Some of its instances need resources.
        self.is_limited = False
        text = config.get("parameters", {}).get("MAX_REQUESTS", {}).get("string_value", 0)
        self.max_requests = int(text)
        #: The time between two executions at least.
        self.interval_ns = interval_ns(config)
        #: Its requests may wait though an instance is free, for more of them or for their turn.
        self.may_wait = bool(sequences or self.delay_ns or self.interval_ns)
        self.may_wait |= "response_cache" in config

    def level(self, row: wire.Request) -> int:
        return row.priority if 0 < row.priority <= self.levels else 2 * bool(self.levels)


@dataclass
class TrackedRequest:
    """A request of a client."""

    row: wire.Request
    model: ExpectedModel
    arrival_ns: int
    #: How many had been asked before; and how many times the core had been called.
    order: int
    core_call: int
    #: It was given to a stub at least once.
    was_dispatched: bool = False


def interval_ns(config: dict[str, Any]) -> int:
    """Return the time between two executions at least."""
    text = config.get("parameters", {}).get("max_executions_per_second", {}).get("string_value", "")
    return int(1e9 / float(text)) if text else 0


class Invariants:
    def __init__(self, world: CheckedHarness, settings: BrokerSettings) -> None:
        self._world = world
        self._settings = settings
        self.live_models: dict[int, ExpectedModel] = {}
        self._models: dict[int, ExpectedModel] = {}
        #: When each model whose pace is limited may be executed again.
        self._next_ns: dict[str, int] = {}
        #: What each stub needs of the rate limiter's resources.
        self.needs: dict[int, ResourceNeed] = {}
        self._supply = ResourcePool(settings.rate)
        #: At the last look.
        self._used: Counter[ResourceKey] = Counter()
        #: Stubs that are to end once they have answered what they have.
        self.draining: set[int] = set()
        #: Asked and not answered; and all that was ever asked.
        self.open_requests: dict[RequestKey, TrackedRequest] = {}
        self._all_requests: dict[RequestKey, TrackedRequest] = {}
        self._dead_frontends: set[int] = set()
        self._order = 0
        self._call = 0
        self._executed: Counter[RequestKey] = Counter()
        self._finals: Counter[RequestKey] = Counter()
        #: Those that were told of their end while they still execute.
        self._abandoned: Counter[RequestKey] = Counter()
        #: Each stub's requests that it answers after its execute() has returned.
        self.owed: list[tuple[int, wire.BatchedRequest]] = []
        self.leased_blocks: Counter[wire.Block] = Counter()
        #: The request before in its sequence, by the request; the last one of each.
        self._predecessors: dict[RequestKey, RequestKey] = {}
        self._last_in_sequence: dict[SequenceKey, RequestKey] = {}
        #: What each stub was given last of each sequence, and who has each sequence now.
        self._last_dispatched: dict[tuple[int, SequenceKey], RequestKey] = {}
        self._owner: dict[SequenceKey, int] = {}
        #: What may be the answer to a key of a generation.
        self._bodies: dict[tuple[int, bytes], set[bytes]] = {}

    # ----------------------------------------------------- what happens

    def model_of(self, number: int) -> ExpectedModel:
        if number in self.live_models:
            self._models[number] = self.live_models[number]
        return self._models[number]

    def update_models(self) -> None:
        """The core has read requests: another generation of their model may have taken them."""
        for route, tracked in self.open_requests.items():
            inflight = self._inflight(route)
            if inflight is not None and inflight.generation.number != tracked.model.number:
                tracked.model = self.model_of(inflight.generation.number)

    def retire_model(self, number: int) -> None:
        """A model takes no more requests."""
        self._models[number] = self.live_models.pop(number)

    def remove_frontend(self, peer: int) -> None:
        """A frontend has died."""
        self._dead_frontends.add(peer)
        self.open_requests = {
            route: tracked for route, tracked in self.open_requests.items() if route[0] != peer
        }

    def record_request(self, peer: int, row: wire.Request, now_ns: int) -> None:
        route = (peer, row.id)
        served = self.model_of(row.generation)
        self._order += 1
        tracked = TrackedRequest(row, served, now_ns, self._order, self._call)
        self.open_requests[route] = self._all_requests[route] = tracked
        if served.is_sequential:
            sequence = (served.name, row.correlation)
            if sequence in self._last_in_sequence:
                self._predecessors[route] = self._last_in_sequence[sequence]
            self._last_in_sequence[sequence] = route

    def record_response(self, route: RequestKey, body: bytes) -> None:
        """A stub answers this, unless somebody did before."""
        tracked = self._all_requests.get(route)
        if tracked is not None and tracked.row.cache_key:
            key = tracked.model.number, tracked.row.cache_key
            self._bodies.setdefault(key, set()).add(body)

    def record_execution(
        self, serial: int, batch: list[wire.BatchedRequest], over: list[wire.BatchedRequest]
    ) -> None:
        routes = [(work.peer, work.id) for work in over if work.id < FIRST_PADDING_ID]
        self._executed.update(routes)
        assert all(self._executed[route] == 1 for route in routes), "executed twice"

    def record_stub_death(self, serial: int, begun: int) -> None:
        works = [
            work for work in self._world.batched_requests.get(serial, []) if work.batch <= begun
        ]
        works += [work for stub, work in self.owed if stub == serial]
        self.record_execution(serial, works, works)

    def check_replies(self, replies: dict[int, list[tuple[wire.Reply, bytes]]]) -> None:
        self._call += 1
        for peer, answers in replies.items():
            for reply, body in answers:
                route = (peer, reply.id)
                assert not self._finals[route], "something after the last answer"
                self._abandoned[route] += bool(reply.flags & wire.ABANDONED)
                assert self._abandoned[route] <= 1, "it is told of its end twice"
                if reply.flags & wire.FINAL:
                    self._finals[route] += 1
                    self.open_requests.pop(route, None)
                    tracked = self._all_requests[route]
                    if tracked.row.cache_key and not reply.code:
                        key = tracked.model.number, tracked.row.cache_key
                        assert body in self._bodies[key], "somebody else's answer"

    def check_dispatched(self, works: dict[int, list[wire.BatchedRequest]]) -> None:
        batches: dict[int, tuple[int, list[wire.BatchedRequest]]] = {}
        for serial, rows in works.items():
            for work in rows:
                batches.setdefault(work.batch, (serial, []))[1].append(work)
        for _, (serial, batch) in sorted(batches.items()):
            self._check_batch(serial, batch)

    def rows_of(self, serial: int, work: wire.BatchedRequest) -> int:
        """Return how many inferences a request is that a stub has."""
        route = wire.RequestKey(work.peer, work.id)
        inflight = self._world.core.instances[serial].open_requests.get(route)
        return 1 if inflight is None else inflight.elements

    # --------------------------------------------------------- a batch

    def _check_batch(self, serial: int, batch: list[wire.BatchedRequest]) -> None:
        instance = self._world.core.instances[serial]
        served = self.model_of(instance.generation)
        if served.interval_ns:
            assert self._is_at_pace(served), f"{serial} is executed too soon"
            self._next_ns[served.name] = self._world.now + served.interval_ns
        routes = [
            wire.RequestKey(work.peer, work.id) for work in batch if work.id < FIRST_PADDING_ID
        ]
        inflight = [
            instance.open_requests[route] for route in routes if route in instance.open_requests
        ]
        if not served.batch_capacity:
            assert len(batch) == 1, "a batch of a model without batches"
        elif served.is_sequential or served.is_iterative:
            assert len(batch) <= served.batch_capacity, "more slots than there are"
        else:
            sizes = [request.elements for request in inflight]
            assert sum(sizes) <= served.batch_capacity, f"{sizes} is above {served.batch_capacity}"
            assert len({request.batch_key for request in inflight}) <= 1, "shapes do not fit"
        for work in batch:
            route = (work.peer, work.id)
            assert not self._finals[route], "given to a stub though it was answered"
            tracked = self._all_requests.get(route)
            if tracked is None or work.id >= FIRST_PADDING_ID:
                continue
            if served.is_sequential:
                self._check_sequence(serial, route, tracked, work)
            elif not served.is_iterative and not tracked.was_dispatched:
                self._check_order(tracked, self._inflight(route))
            tracked.was_dispatched = True

    def _is_at_pace(self, served: ExpectedModel) -> bool:
        return self._world.now >= self._next_ns.get(served.name, 0)

    def _inflight(self, route: RequestKey) -> InflightRequest | None:
        peer = self._world.core.peers.get(route[0])
        return peer.requests.get(route[1]) if peer is not None else None

    def _is_waiting(self, route: RequestKey, tracked: TrackedRequest) -> bool:
        """Return True if it is in a queue, in time, and was never out of it."""
        inflight = self._inflight(route)
        return inflight is not None and not tracked.was_dispatched and not inflight.is_late

    def _check_order(self, tracked: TrackedRequest, request: InflightRequest | None) -> None:
        level = tracked.model.level(tracked.row)
        is_late = request is not None and request.is_late
        for route, other in self.open_requests.items():
            if other.model is not tracked.model or not self._is_waiting(route, other):
                continue
            theirs = other.model.level(other.row)
            was_there = other.core_call < tracked.core_call or other.order < tracked.order
            if theirs == level and other.order < tracked.order and not is_late:
                raise AssertionError(f"{tracked.row} overtakes {other.row}")
            # In the middle of one call the higher one may not have been read yet.
            if theirs < level and was_there and other.order < tracked.order:
                raise AssertionError(f"{tracked.row} goes before the higher {other.row}")

    def _check_sequence(
        self, serial: int, route: RequestKey, tracked: TrackedRequest, work: wire.BatchedRequest
    ) -> None:
        sequence = (tracked.model.name, tracked.row.correlation)
        earlier = self._last_dispatched.get((serial, sequence))
        if tracked.was_dispatched:
            return  # once more, by a stub that goes on
        self._last_dispatched[serial, sequence] = route
        self._owner[sequence] = serial
        if not work.flags & wire.SEQUENCE_START:
            assert self._predecessors.get(route) == earlier, "one is missing, or comes too late"
            assert earlier is not None
            assert not self._all_requests[earlier].row.flags & wire.SEQUENCE_END
        # A generation that is about to go may still be amid one of the same id.
        others = [
            work
            for work in self._executing()
            if (other := self._all_requests.get((work.peer, work.id))) is not None
            and work.id < FIRST_PADDING_ID
            and (other.model, other.row.correlation) == (tracked.model, tracked.row.correlation)
            and (work.peer, work.id) != route
        ]
        assert not others, "two of one sequence at once"

    def _executing(self) -> list[wire.BatchedRequest]:
        """Return what stubs have been given and have not answered."""
        works = [work for works in self._world.batched_requests.values() for work in works]
        return works + [work for _, work in self.owed]

    def _idle_instances(self) -> list[Instance]:
        return [
            instance
            for serial, instance in self._world.core.instances.items()
            if serial in self.needs.keys() - self.draining
            and not self._world.batched_requests.get(serial)
        ]

    # ---------------------------------------------------- at any moment

    def check(self) -> None:
        assert all(count == 1 for count in self._finals.values())
        due_ns = self._world.core.due_ns
        assert due_ns is None or due_ns > self._world.now, "it is busy without end"
        self._check_resources()
        self._check_limits()
        for scheduler in self._world.core.generations.schedulers.values():
            self._check_queue(scheduler)
        waiting: dict[int, list[TrackedRequest]] = {}
        routes = {(work.peer, work.id) for work in self._executing()}
        for route, tracked in self.open_requests.items():
            if route not in routes and self._inflight(route) is not None:
                waiting.setdefault(tracked.model.number, []).append(tracked)
        for instance in self._idle_instances():
            served = self.model_of(instance.generation)
            rest = waiting.get(served.number, [])
            if not served.is_limited and rest and self._is_at_pace(served):
                self._check_idle(instance.serial, served, rest)

    def _check_queue(self, scheduler: Scheduler) -> None:
        """Check that nobody who was never dispatched waits longer than he may."""
        if scheduler.sequences is None:
            queued = scheduler.queued()
            expiries_ns = {scheduler.expiry_ns(one) for one in queued if not one.dispatched_ns}
            assert all(expiry_ns > self._world.now for expiry_ns in expiries_ns - {0})
            assert scheduler.pending == len(queued)

    def _check_idle(
        self, serial: int, served: ExpectedModel, waiting: list[TrackedRequest]
    ) -> None:
        oldest_ns = self._world.now - waiting[0].arrival_ns
        if served.is_iterative:
            return
        if served.is_sequential:
            late = {work.correlation for stub, work in self.owed if stub == serial}
            for tracked in waiting:
                sequence = (served.name, tracked.row.correlation)
                first = next(a for a in waiting if a.row.correlation == tracked.row.correlation)
                is_next = first is tracked and tracked.row.correlation not in late
                has_begun = self._owner.get(sequence) == serial and is_next
                goes_on = has_begun and not tracked.row.flags & wire.SEQUENCE_START
                assert served.delay_ns or not goes_on, f"{serial} is idle, {tracked.row} waits"
            return
        rows = sum(tracked.row.batch_size or 1 for tracked in waiting)
        keys = {tracked.row.batch_key for tracked in waiting}
        assert oldest_ns < served.delay_ns, f"{serial} is idle, {waiting[0].row} waits"
        assert rows < served.batch_capacity or len(keys) > 1, f"{serial} is idle, {rows} wait"

    def _check_resources(self) -> None:
        limits = self._supply.limits(self.needs.values())
        used: Counter[ResourceKey] = Counter()
        for serial, need in self.needs.items():
            batches = {work.batch for work in self._world.batched_requests.get(serial, [])}
            for key, count in need.amounts.items():
                used[key] += count * len(batches)
        # Where the greediest one has gone there is less than before; what runs goes on.
        assert all(used[key] <= max(limits[key], self._used[key]) for key in used), (used, limits)
        self._used = used
        self._check_sharing({key: limits[key] - used[key] for key in limits})

    def _check_sharing(self, free: dict[ResourceKey, int]) -> None:
        """Check that an instance that could execute stands back only for one that cannot."""
        schedulers = self._world.core.generations.schedulers
        idle = [
            (self.model_of(instance.generation), self.needs[instance.serial])
            for instance in self._idle_instances()
            if instance.generation in schedulers and schedulers[instance.generation].queued()
        ]
        idle = [one for one in idle if one[0].is_limited]
        back = [
            (served, need)
            for served, need in idle
            if served.may_wait or any(free[key] < count for key, count in need.amounts.items())
        ]
        for served, need in back:
            back += [
                one
                for one in idle
                if one not in back and one[0] is not served and one[1].amounts.keys() & need.amounts
            ]
        assert all(one in back for one in idle), (idle, back, free)

    def _check_limits(self) -> None:
        # Whose answer only waits for those of others is through.
        admitted = [
            tracked for route, tracked in self.open_requests.items() if self._inflight(route)
        ]
        limit = self._settings.limits.max_requests
        assert not limit or len(admitted) <= limit, "more than the server takes"
        for number, count in Counter(tracked.model.number for tracked in admitted).items():
            limit = self.model_of(number).max_requests or self._settings.limits.max_model_requests
            assert not limit or count <= limit, "more than the model takes"

    # ------------------------------------------------------- at the end

    def check_sequences(self) -> None:
        """Nothing was asked for long."""
        for scheduler in self._world.core.generations.schedulers.values():
            sequences = scheduler.sequences
            if sequences is not None and not sequences.is_iterative:
                waiting = {request.correlation for request in sequences.waiting()}
                assert sequences.count == len(waiting), "an idle sequence is still open"
                assert waiting or (0, 0) == (scheduler.pending, scheduler.due_ns)

    def check_end(self) -> None:
        core = self._world.core
        assert {} == self.open_requests
        assert [] == [
            r
            for r in self._all_requests
            if r[0] not in self._dead_frontends and self._finals[r] != 1
        ]
        assert (0, 0) == (core.limits.unanswered, core.limits.unanswered_bytes)
        assert 0 == core.traffic.malformed
        assert all(not peer.requests for peer in core.peers.values())

    def check_memory(self, living: set[int]) -> None:
        """Check that what was lent comes back, once for each time."""
        assert 0 == self._world.core.blocks.leases.count
        lent = self.leased_blocks + Counter(
            b for blocks in self._world.leased_blocks.values() for b in blocks
        )
        released = Counter(b for blocks in self._world.released_blocks.values() for b in blocks)
        assert released <= lent
        assert all(released[block] == lent[block] for block in lent if block.owner in living)
