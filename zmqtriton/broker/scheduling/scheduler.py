"""The scheduler of one generation: its queue, its instances, and the next batch for each.

Any idle instance takes the queue's next batch; `batching` forms the batches.
"""

from __future__ import annotations

from zmqtriton.broker.requests.inflight import Batch, InflightRequest
from zmqtriton.broker.scheduling.batching import BatchingQueue
from zmqtriton.broker.scheduling.execution_rate import ExecutionRate, Refusal
from zmqtriton.broker.scheduling.fitting import queue_of
from zmqtriton.broker.scheduling.generation import BrokerGeneration
from zmqtriton.broker.scheduling.instances import Instance
from zmqtriton.broker.scheduling.placement import Placement, SendingAhead
from zmqtriton.broker.sequences.batcher import SequenceBatcher


class Scheduler:
    """The requests that wait for a generation, and the instances that execute them."""

    def __init__(self, generation: BrokerGeneration) -> None:
        config = generation.config
        self.generation = generation
        self.instances: dict[int, Instance] = {}
        #: Assigns sequences to instances; None if requests are not parts of sequences.
        self.sequences: SequenceBatcher | None = None
        if generation.has_sequences:
            self.sequences = SequenceBatcher(generation.model, config)
        self.queue = queue_of(config)
        self.placement = Placement(
            self.instances,
            ahead=SendingAhead(
                is_batching="dynamic_batching" in config,
                has_queue_rules=self.queue.levels.has_rules or generation.max_streams > 0,
            ),
            has_concurrent_batches="MAX_INFLIGHT" in config.get("parameters", {})
            or generation.max_streams > 0,
            notes_idle=not (generation.has_sequences or generation.max_streams > 0),
        )
        #: Rate of executions; None if it is not limited.
        self.rate: ExecutionRate | None = None
        #: Number of requests in the queue that are still wanted.
        self.pending = 0
        #: Number of requests that must wait before the first batch is dispatched; 0 from then on.
        self._held_until = 0
        #: Time when there may be a batch and an instance, if nothing else happens; 0: never.
        self._due_ns = 0
        #: Time of the queue's timer; 0 if there is none.
        self.timer_ns = 0

    def hold_back(self, requests: int) -> None:
        """Dispatch nothing before this many requests wait, if the model has a batcher."""
        if "dynamic_batching" in self.generation.config or self.sequences is not None:
            self._held_until = requests

    @property
    def sequence_count(self) -> int:
        return 0 if self.sequences is None else self.sequences.count

    @property
    def due_ns(self) -> int:
        """Return the time to call next_dispatch() again without other events; 0: never."""
        if self._held_until:
            return 0
        if self.rate is not None and self.rate.is_waiting:
            return self.rate.shared.free_ns
        if self.sequences is not None:
            return self.sequences.due_ns
        return self._due_ns

    def enqueue(self, request: InflightRequest) -> bool:
        """Queue a request; return True if the queue limits its time, or the number of requests."""
        if self.generation.order is not None:
            self.generation.order.add(request.key, request.flags)
        self.pending += 1
        return self.queue.levels.add(request).is_limited

    def is_crowded(self, request: InflightRequest) -> bool:
        """True if a queued request is one too many of its kind."""
        return request.place is not None and self.queue.levels.of(request).is_crowded

    def reschedule(self, request: InflightRequest, now_ns: int) -> bool:
        """Queue a request for its next step, which the same stub executes.

        False if it cannot have a next step, because an earlier broker has begun the request.
        """
        if self.sequences is None or not self.sequences.reschedule(request):
            return False
        request.reschedule(now_ns)
        self.pending += 1
        return True

    def hold(self, request: InflightRequest) -> None:
        """Count a request as pending while it waits elsewhere for a decision."""
        if self.generation.order is not None:
            self.generation.order.add(request.key, request.flags)
        self.pending += 1

    def requeue(self, request: InflightRequest) -> None:
        """Queue a request that was held and must be executed."""
        if self.sequences is not None:
            self.sequences.begin_steps(request)
        else:
            self.queue.levels.add(request)

    @property
    def waiting(self) -> int:
        """Return the requests that are not cancelled and not begun: queued, or sent ahead."""
        return self.pending + sum(one.waiting for one in self.instances.values())

    def leave_queue(self, request: InflightRequest) -> None:
        """Drop a queued request that was answered without being executed."""
        self.pending -= 1
        if request.place is not None:
            request.place.leave(request)

    def expiry_ns(self, request: InflightRequest) -> int:
        """Return the time when a request's wait in the queue is over; 0: never."""
        if request.place is None or request.is_late:
            return 0
        return self.queue.levels.of(request).policy.expiry_ns(request)

    def delay(self, request: InflightRequest) -> bool:
        """Handle a queue timeout: True if the request may stay, behind the others."""
        level = self.queue.levels.of(request)
        if request.place is not level or not level.policy.delays:
            return False
        level.demote(request)
        return True

    def put_back(self, requests: list[InflightRequest]) -> None:
        """Queue requests again that were sent ahead to a stub that died before it began them."""
        for request in requests:
            request.recall()
        if self.sequences is None:  # otherwise they are queued already
            self.queue.put_back(requests)
        self.pending += len(requests)

    def has_ready(self, instance: Instance, now_ns: int) -> bool:
        """True if the instance could begin a batch now or soon.

        Delays of sequences do not count.
        """
        if self.rate is not None and not self.rate.may_begin(now_ns):
            return False
        if self.sequences is not None:
            return self.sequences.assignment.has_ready(instance)
        return self.queue.is_ready(now_ns)

    def next_dispatch(self, now_ns: int) -> tuple[Instance, list[InflightRequest]] | None:
        """Return the next batch and its stub; None while no stub is idle or no batch is due."""
        if self.pending < self._held_until:
            return None
        self._held_until = 0
        rate = self.rate
        if rate is not None:
            rate.is_waiting = self.pending > 0 and not rate.may_begin(now_ns)
            if rate.is_waiting:
                return None
        if self.sequences is not None:
            return self._next_of_sequences(self.sequences, now_ns)
        instance = self.placement.take_instance(self.pending, now_ns)
        if instance is None:
            self._due_ns = self.placement.ahead.due_ns
            return None
        share = self.placement.share
        batch = self.queue.pop_batch(now_ns) if share is None else self.queue.take(share)
        self._due_ns = self.queue.due_ns
        if not batch:
            self.placement.give_back(instance)
            return None
        if instance.streams is not None and len(batch) > 1:
            room = instance.streams.room(instance)
            self.queue.put_back(batch[room:])
            batch = batch[:room]
        self.pending -= len(batch)
        if rate is not None:
            rate.shared.begin(now_ns)
        return instance, batch

    def learn(self, batch: Batch, busy_ns: int, now_ns: int) -> None:
        """Let the queue choose its delay and size by what a batch has taken."""
        queue, instances = self.queue, self.instances.values()
        assert isinstance(queue, BatchingQueue)
        assert queue.choice is not None
        slots = sum(one.concurrency for one in instances)
        took_ns = busy_ns if slots == len(instances) else now_ns - batch.dispatched_ns
        queue.choice.learn(batch.requests, took_ns, slots, now_ns)
        queue.choose_by(queue.choice)

    def _next_of_sequences(
        self, sequences: SequenceBatcher, now_ns: int
    ) -> tuple[Instance, list[InflightRequest]] | None:
        chosen = sequences.next(self.instances.values(), now_ns)
        if chosen is not None:
            self.pending -= len(chosen[1])
            if self.rate is not None:
                self.rate.shared.begin(now_ns)
        return chosen

    def refusal(self, error: Refusal) -> Refusal:
        """Return the error of a refused request; it names the cause if the queue had to wait."""
        if self.rate is None or not (self.rate.is_waiting and self.pending):
            return error
        return self.rate.refusal(error)

    def queued(self) -> list[InflightRequest]:
        """Return all queued requests, the next one first."""
        return [*self.queue.levels] if self.sequences is None else self.sequences.waiting()
