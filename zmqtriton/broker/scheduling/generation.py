"""One generation of a model: its queue, its instances, and the next batch for each.

Any idle instance takes what the queue gives; `batching` decides what goes together.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

from zmqtriton.broker.ensembles.plan import EnsemblePlan
from zmqtriton.broker.metrics.response_counts import ResponseCounts
from zmqtriton.broker.metrics.statistics import ModelStatistics
from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton.broker.requests.response_order import order_of
from zmqtriton.broker.scheduling.batching import queue_of
from zmqtriton.broker.scheduling.execution_pace import MAX_EXECUTIONS, ExecutionPace, Refusal
from zmqtriton.broker.scheduling.instances import Instance
from zmqtriton.broker.scheduling.placement import Placement
from zmqtriton.broker.scheduling.queue_policy import PriorityLevel
from zmqtriton.broker.sequences.batcher import SequenceBatcher
from zmqtriton_floor.cache_keys import is_cached
from zmqtriton_floor.signature import Signature, takes_gpu
from zmqtriton_floor.wire import UNCHECKED, Request

if TYPE_CHECKING:
    from zmqtriton.broker.metrics.latencies import StatisticsFactory

#: The model parameter that limits one execute(), in seconds; absent or 0: no limit.
_MAX_EXECUTION = "max_execution_seconds"
#: The model parameter that limits the unanswered requests of clients; 0: no limit.
_MAX_REQUESTS = "max_requests"


def _parameter(config: dict[str, Any], name: str) -> float | None:
    """Return a model's numeric parameter in any spelling of its name, or None."""
    for key, value in config.get("parameters", {}).items():
        if key.lower() == name:
            try:
                number = float(value.get("string_value", ""))
            except ValueError:
                return None
            return number if 0 <= number < 1e9 else None
    return None


def _instances(config: dict[str, Any]) -> int:
    groups = config.get("instance_group") or [{}]
    return sum(group.get("count", 1) * max(1, len(group.get("gpus", []))) for group in groups)


class Generation:
    """One loading of one version of a model, as the broker sees it."""

    def __init__(self, number: int, model: str, version: int, config: str) -> None:
        document: dict[str, Any] = json.loads(config) if config else {}
        policy = document.get("model_transaction_policy") or {}
        self._interface = [document.get(k) for k in ("max_batch_size", "input", "output")]
        self._has_batches = bool(document.get("max_batch_size"))
        self.number = number
        self.model = model
        self.version = version
        self.is_decoupled = bool(policy.get("decoupled", False))
        #: Equal requests may get the answer of an earlier one.
        self.is_cached = is_cached(document) and not self.is_decoupled
        #: Its inputs may lie on a GPU.
        self.takes_gpu = takes_gpu(document)
        #: The steps of an ensemble; None for a model that has stubs.
        self.plan = EnsemblePlan(model, document) if "ensemble_scheduling" in document else None
        self.max_execution_ns = int((_parameter(document, _MAX_EXECUTION) or 0) * 1e9)
        most = _parameter(document, _MAX_REQUESTS)
        #: None if the server's options decide.
        self.most_requests = None if most is None else int(most)
        #: Set if its executions per second are limited.
        self.pace: ExecutionPace | None = None
        self.statistics = ModelStatistics()
        self.instances: dict[int, Instance] = {}
        #: The models that this one has called.
        self.calls: set[str] = set()
        #: It takes no more requests; the last answer ends it.
        self.is_retired = False
        #: It is retired and the supervisor knows that nothing is left: its stubs are ending.
        self.is_drained = False
        #: Admitted requests without an answer.
        self.unanswered = 0
        #: The execution time of all its instances, up to the end of the last batch of each.
        self.busy_ns = 0
        #: The order in which its answers leave; None if they leave as they come.
        self.order = order_of(document)
        #: The number of instances when all are there.
        self.expected = _instances(document)
        #: Assigns sequences to instances; None if its requests are not parts of sequences.
        self.sequences: SequenceBatcher | None = None
        if "sequence_batching" in document:
            self.sequences = SequenceBatcher(model, document)
        self.placement = Placement(
            self.instances,
            has_dynamic_batching="dynamic_batching" in document,
            has_concurrent_batches="MAX_INFLIGHT" in document.get("parameters", {}),
            has_sequences="sequence_batching" in document,
        )
        self.config: dict[str, Any] = document
        self._queue = queue_of(document)
        #: Requests in the queue that are still wanted.
        self.pending = 0
        #: Nothing is dispatched before so many requests wait; 0 from then on.
        self._held_until = 0
        #: When the queue's timer fires; 0 if there is none.
        self.timer_ns = 0

    @property
    def max_executions_per_second(self) -> float:
        """Return the model's limit; 0 is no limit."""
        return _parameter(self.config, MAX_EXECUTIONS) or 0.0

    def measure(self, latencies: StatisticsFactory) -> None:
        """Begin to count, as the server's settings ask for."""
        self.statistics = latencies.statistics(self.config, is_cached=self.is_cached)
        self.statistics.responses = ResponseCounts() if self.is_decoupled else None

    def hold_back(self, requests: int) -> None:
        """Dispatch nothing before so many requests wait, if the model has a batcher."""
        if "dynamic_batching" in self.config or self.sequences is not None:
            self._held_until = requests

    def count_responses(self, told: str) -> None:
        if self.statistics.responses is not None:
            self.statistics.responses.add(told)

    def regroup(self, config: str) -> None:
        """Change the instance groups; everything else stays."""
        self.expected = _instances(json.loads(config))

    def has_same_interface_as(self, other: Generation) -> bool:
        """True if a request that was checked against this generation fits the other one too."""
        return self._interface == other._interface

    def adapt_bls_row(self, row: Request) -> Request:
        """Complete the row of a request that a model has made.

        The model could check nothing, so the stub must; and it could not know whether the first
        dimension is that of a batch.
        """
        flags = row.flags | UNCHECKED
        if self._has_batches:
            key = 0 if self.signature.has_constant_key else row.batch_key
            return row._replace(flags=flags, batch_key=key)
        return row._replace(flags=flags, batch_size=0, batch_key=0)

    @cached_property
    def signature(self) -> Signature:
        """The signature for the requests of ensembles, which nobody has checked yet."""
        return Signature({"name": self.model, **self.config})

    @property
    def is_iterative(self) -> bool:
        """True if requests are executed step by step."""
        return self.sequences is not None and self.sequences.is_iterative

    @property
    def due_ns(self) -> int:
        """When to call next_dispatch() again though nothing else happens; 0 is never."""
        if self._held_until:
            return 0
        if self.pace is not None and self.pace.is_waiting:
            return self.pace.due_ns
        if self.sequences is not None:
            return self.sequences.due_ns
        return self._queue.due_ns if self.placement.may_have_room else 0

    def enqueue(self, request: InflightRequest) -> PriorityLevel:
        """Queue a request; return the level in which it waits."""
        if self.order is not None:
            self.order.add(request.peer, request.row)
        level = self._queue.levels.of(request)
        level.add(request)
        self.pending += 1
        return level

    def reschedule(self, request: InflightRequest, now_ns: int) -> bool:
        """Queue a request for its next step, which the same stub executes.

        False if it can have none, because an earlier broker has begun the request.
        """
        request.reschedule(now_ns)
        self.pending += 1
        return self.sequences is not None and self.sequences.reschedule(request)

    def hold(self, request: InflightRequest) -> None:
        """Count a request as pending while it waits elsewhere until its fate is clear."""
        if self.order is not None:
            self.order.add(request.peer, request.row)
        self.pending += 1

    def requeue(self, request: InflightRequest) -> None:
        """Queue a request that was held and must be executed."""
        if self.sequences is not None:
            self.sequences.begin_steps(request)
        else:
            self._queue.levels.of(request).add(request)

    @property
    def waiting(self) -> int:
        """Return the requests that are wanted and not begun: queued, or sent ahead."""
        return self.pending + sum(one.waiting for one in self.instances.values())

    def leave_queue(self, request: InflightRequest) -> None:
        """Drop a queued request that was answered without being executed."""
        self.pending -= 1
        if request.place is not None:
            request.place.leave(request)

    def expiry_ns(self, request: InflightRequest) -> int:
        """Return when a request has waited in the queue for as long as it may; 0 is never."""
        if request.place is None or request.is_late:
            return 0
        return self._queue.levels.of(request).policy.expiry_ns(request)

    def delay(self, request: InflightRequest) -> bool:
        """Act on a queue timeout: True if the request may wait on behind the others."""
        level = self._queue.levels.of(request)
        if request.place is not level or not level.policy.delays:
            return False
        level.demote(request)
        return True

    def put_back(self, requests: list[InflightRequest]) -> None:
        """Queue requests again that were sent ahead to a stub that died before it began them."""
        for request in requests:
            request.recall()
        if self.sequences is None:  # otherwise they are queued already
            self._queue.put_back(requests)
        self.pending += len(requests)

    def has_ready(self, instance: Instance, now_ns: int) -> bool:
        """True if there is something that it could begin now or soon.

        Delays of sequences do not count.
        """
        if self.pace is not None and not self.pace.may_begin(now_ns):
            return False
        if self.sequences is not None:
            return self.sequences.assignment.has_ready(instance)
        return self._queue.is_ready(now_ns)

    def next_dispatch(self, now_ns: int) -> tuple[Instance, list[InflightRequest]] | None:
        """Return the next batch and its stub; None while nobody is idle or nothing is due."""
        if self.pending < self._held_until:
            return None
        self._held_until = 0
        pace = self.pace
        if pace is not None:
            pace.is_waiting = self.pending > 0 and not pace.may_begin(now_ns)
            if pace.is_waiting:
                return None
        if self.sequences is not None:
            chosen = self.sequences.next(self.instances.values(), now_ns)
            if chosen is not None:
                self.pending -= len(chosen[1])
                if pace is not None:
                    pace.pacemaker.begin(now_ns)
            return chosen
        instance = self.placement.take_instance()
        if instance is None:
            return None
        batch = self._queue.pop_batch(now_ns)
        if not batch:
            self.placement.give_back(instance)
            return None
        self.pending -= len(batch)
        if pace is not None:
            pace.pacemaker.begin(now_ns)
        return instance, batch

    def refusal(self, error: Refusal) -> Refusal:
        """Return the error of a request that is refused; it names what held the queue up."""
        if self.pace is None or not (self.pace.is_waiting and self.pending):
            return error
        return self.pace.refusal(error)

    def queued(self) -> list[InflightRequest]:
        """Return all queued requests, in the order in which they will be executed."""
        return self._queue.waiting() if self.sequences is None else self.sequences.waiting()
