"""One generation of a model: its queue, its stubs, and which requests go next to whom.

Any idle stub takes what the queue gives; what goes together is decided in `batching`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from zmqtriton.broker.ensembles.plan import EnsemblePlan
from zmqtriton.broker.metrics.response_counts import ResponseCounts
from zmqtriton.broker.metrics.statistics import ModelStatistics
from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton.broker.requests.response_order import order_of
from zmqtriton.broker.scheduling.batching import queue_of
from zmqtriton.broker.scheduling.instances import Instance
from zmqtriton.broker.scheduling.placement import Placement
from zmqtriton.broker.sequences.batcher import SequenceBatcher
from zmqtriton_floor.cache_keys import is_cached
from zmqtriton_floor.signature import Signature, takes_gpu
from zmqtriton_floor.wire import UNCHECKED, BatchedRequest, Request

if TYPE_CHECKING:
    from zmqtriton.broker.metrics.latencies import StatisticsFactory

#: The model parameter that bounds one execute(), in seconds; absent or 0: unbounded.
_MAX_EXECUTION = "max_execution_seconds"
#: The model parameter that bounds how many requests of clients may be unanswered; 0: unbounded.
_MAX_REQUESTS = "max_requests"


def _parameter(config: dict[str, Any], name: str) -> float | None:
    """A number that a model gives, in any spelling of the name; None: it gives none."""
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
    """What the broker keeps of one loading of one version."""

    def __init__(self, number: int, model: str, version: int, config: str) -> None:
        document: dict[str, Any] = json.loads(config) if config else {}
        policy = document.get("model_transaction_policy") or {}
        self._interface = [document.get(k) for k in ("max_batch_size", "input", "output")]
        self._has_batches = bool(document.get("max_batch_size"))
        self.number = number
        self.model = model
        self.version = version
        self.is_decoupled = bool(policy.get("decoupled", False))
        #: Equal requests may have the answer of an earlier one.
        self.is_cached = is_cached(document) and not self.is_decoupled
        #: Its inputs may lie on a GPU.
        self.takes_gpu = takes_gpu(document)
        #: What an ensemble does; None for a model that has stubs.
        self.plan = EnsemblePlan(model, document) if "ensemble_scheduling" in document else None
        self.max_execution_ns = int((_parameter(document, _MAX_EXECUTION) or 0) * 1e9)
        most = _parameter(document, _MAX_REQUESTS)
        #: None: as many as the server's options say.
        self.most_requests = None if most is None else int(most)
        self.statistics = ModelStatistics()
        self.instances: dict[int, Instance] = {}
        #: The models that this one has asked.
        self.calls: set[str] = set()
        #: Takes no more requests; the last answer ends it.
        self.is_retired = False
        #: Retired, and the supervisor was told that nothing is left: its stubs are ending.
        self.is_drained = False
        #: Admitted and not yet answered.
        self.unanswered = 0
        #: How long its instances have been executing, each for itself, up to when each last ended.
        self.busy_ns = 0
        #: In which order its answers leave; None: as they come.
        self.order = order_of(document)
        #: How many instances there are, when all are there.
        self.expected = _instances(document)
        #: Who may execute what, where requests are parts of sequences; None: they are not.
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
        #: In the queue and still wanted.
        self.pending = 0
        #: When a timer was started for, to look at the queue again; 0: there is none.
        self.timer_ns = 0

    def measure(self, latencies: StatisticsFactory) -> None:
        """It is new: from now on it is counted as the server wants it."""
        self.statistics = latencies.statistics(self.config, is_cached=self.is_cached)
        self.statistics.responses = ResponseCounts() if self.is_decoupled else None

    def count_responses(self, told: str) -> None:
        if told and self.statistics.responses is not None:
            self.statistics.responses.add(told)

    def regroup(self, config: str) -> None:
        """There are to be other instances; everything else is as it was."""
        self.expected = _instances(json.loads(config))

    def has_same_interface_as(self, other: Generation) -> bool:
        """Whether a request that was checked against this one fits the other too."""
        return self._interface == other._interface

    def adapt_bls_row(self, row: Request) -> Request:
        """The row of a request that a model has made. It could check nothing, so the stub here
        must; and it could not know whether the first dimension is that of a batch here."""
        flags = row.flags | UNCHECKED
        if self._has_batches:
            key = 0 if self.signature.has_constant_key else row.batch_key
            return row._replace(flags=flags, batch_key=key)
        return row._replace(flags=flags, batch_size=0, batch_key=0)

    @cached_property
    def signature(self) -> Signature:
        """For the requests of ensembles, which nobody has checked before."""
        return Signature({"name": self.model, **self.config})

    @property
    def is_iterative(self) -> bool:
        """Whether requests are executed step by step."""
        return self.sequences is not None and self.sequences.is_iterative

    @property
    def due_ns(self) -> int:
        """When next_dispatch() is to be asked again though nothing else happens; 0: then never."""
        if self.sequences is not None:
            return self.sequences.due_ns
        return self._queue.due_ns if self.placement.may_have_room else 0

    def enqueue(self, request: InflightRequest) -> None:
        if self.order is not None:
            self.order.add(request)
        self._queue.add(request)
        self.pending += 1

    def reschedule(self, request: InflightRequest, now_ns: int) -> None:
        """It was executed, and is to be executed again by the same stub."""
        request.reschedule(now_ns)
        self.pending += 1
        if self.sequences is not None and request.sequence is not None:
            self.sequences.reschedule(request.sequence, request)

    def hold(self, request: InflightRequest) -> None:
        """It counts as pending, and waits elsewhere until it is clear what became of it."""
        if self.order is not None:
            self.order.add(request)
        self.pending += 1

    def requeue(self, request: InflightRequest) -> None:
        """It was held, and has to be executed."""
        if self.sequences is not None:
            self.sequences.begin_steps(request)
        else:
            self._queue.add(request)

    @property
    def awaits_hello(self) -> bool:
        """Whether a stub that it has may still have to tell of the time of an earlier broker."""
        return any(not i.has_arrived for i in self.instances.values())

    @property
    def waiting(self) -> int:
        """Requests that are wanted and not begun: in the queue, and sent ahead."""
        return self.pending + sum(one.waiting for one in self.instances.values())

    def leave_queue(self, request: InflightRequest) -> None:
        """A queued request was answered without being executed."""
        self.pending -= 1
        if request.level is not None:
            request.level.leave(request)

    def put_back(self, requests: list[InflightRequest]) -> None:
        """They were sent ahead to a stub that died before it began them."""
        for request in requests:
            request.recall()
        if self.sequences is None:  # else they are back already
            self._queue.put_back(requests)
        self.pending += len(requests)

    def has_ready(self, instance: Instance, now_ns: int) -> bool:
        """Whether something waits that it could begin now, or soon: delays of sequences do not
        count."""
        if self.sequences is not None:
            return self.sequences.assignment.has_ready(instance)
        return self._queue.is_ready(now_ns)

    def next_dispatch(self, now_ns: int) -> tuple[Instance, list[InflightRequest]] | None:
        """Which stub gets what now; None while nobody is idle or nothing is to go yet."""
        if self.sequences is not None:
            chosen = self.sequences.next(self.instances.values(), now_ns)
            self.pending -= len(chosen[1]) if chosen is not None else 0
            return chosen
        instance = self.placement.next_instance()
        batch = self._queue.pop_batch(now_ns) if instance is not None else []
        if instance is None or not batch:
            return None
        self.placement.take(instance)
        self.pending -= len(batch)
        return instance, batch

    def queued(self) -> list[InflightRequest]:
        """All that wait, in the order in which they are to be executed."""
        return self._queue.waiting() if self.sequences is None else self.sequences.waiting()

    def works(
        self, batch: list[InflightRequest], number: int, numbers: Iterator[int]
    ) -> list[tuple[BatchedRequest, bytes]]:
        """What a stub is sent for a batch; requests of the broker's own take further numbers."""
        if self.sequences is not None:
            return self.sequences.controls.works(batch, number, numbers)
        return [(request.work(number), request.body) for request in batch]
