"""Gives waiting requests to idle stubs, after each event and when a queue's delay is over.

Requests that arrived together are dispatched only after all of them were queued, so that they can
share a batch.
"""

from __future__ import annotations

import itertools

from zmqtriton.broker.peers import Peer
from zmqtriton.broker.requests.inflight import Batch, InflightRequest
from zmqtriton.broker.scheduling.generation import BrokerGeneration
from zmqtriton.broker.scheduling.instances import EARLIER, Instance, InstanceEvent, Occupation
from zmqtriton.broker.scheduling.rate_limiter import RateLimiter
from zmqtriton.broker.scheduling.scheduler import Scheduler
from zmqtriton.broker.sequences.batcher import SequenceBatcher
from zmqtriton.broker.state import BrokerPart, BrokerState
from zmqtriton.broker.timers import Timers
from zmqtriton_floor import wire
from zmqtriton_floor.execution_progress import EPOCH_SHIFT
from zmqtriton_floor.reasons import Kind, Reason

_MAY_RUN_OUT = (Occupation.BUSY, Occupation.ABSENT, Occupation.LEAVING)


class Dispatch(BrokerPart):
    def __init__(self, state: BrokerState, timers: Timers, rates: RateLimiter) -> None:
        super().__init__(state)
        self._timers = timers
        self._rates = rates
        #: Schedulers that may have something to dispatch since the last time, by generation number.
        self.marked: dict[int, Scheduler] = {}
        self._epoch = 0
        self._numbers = itertools.count(1)

    def begin_epoch(self, epoch: int) -> None:
        """Number batches so that they are later than the batches of every earlier broker."""
        self._epoch = epoch
        self._numbers = itertools.count(epoch << EPOCH_SHIFT)

    def mark_for_dispatch(self, generation: BrokerGeneration) -> None:
        """Mark a generation that got a request or an idle stub, unless it was removed."""
        scheduler = self._schedulers.get(generation.number)
        if scheduler is not None:
            self.marked[generation.number] = scheduler

    def has_room(self, request: InflightRequest, now_ns: int) -> bool:
        """True if a request may stay in its queue.

        Requests that came with it and can be dispatched at once take no room.
        """
        scheduler = self._schedulers[request.generation.number]
        if scheduler.is_crowded(request):
            if scheduler.placement.is_limited:
                while self._dispatch_limited(now_ns):
                    pass
            else:
                self._dispatch(scheduler, now_ns)
        return not scheduler.is_crowded(request)

    def start_queue_timer(self, request: InflightRequest) -> None:
        """Start the timer of a request in its queue, perhaps not for the first time."""
        expiry_ns = self._schedulers[request.generation.number].expiry_ns(request)
        if expiry_ns:
            self._timers.start(expiry_ns, request=request, in_queue=True)

    def delay(self, request: InflightRequest) -> bool:
        """Handle a queue timeout: True if the request may stay, behind the others."""
        if not self._schedulers[request.generation.number].delay(request):
            return False
        self.mark_for_dispatch(request.generation)
        return True

    def dispatch_marked(self, now_ns: int) -> None:
        """Dispatch all ready requests in all generations that were marked."""
        while self.marked:
            marked, self.marked = self.marked, {}
            for scheduler in marked.values():
                if scheduler.placement.is_limited:
                    self._end_idle_sequences(scheduler, now_ns)
                else:
                    self._dispatch(scheduler, now_ns)
        while self._rates.limited and self._dispatch_limited(now_ns):
            pass

    def _dispatch_limited(self, now_ns: int) -> bool:
        """Dispatch to the first rate-limited instance that can begin a batch.

        False if none can.

        Any other instance may wait for the resources that one has returned, so all are checked.
        """
        for scheduler, instance in self._rates.candidates(now_ns):
            membership = instance.membership
            assert membership is not None
            membership.is_its_turn = True
            has_begun = self._dispatch(scheduler, now_ns, is_one=True)
            membership.is_its_turn = False
            if has_begun:
                self._rates.began(instance)
                return True
        return False

    def _dispatch(self, scheduler: Scheduler, now_ns: int, *, is_one: bool = False) -> bool:
        """Dispatch a generation's batches while it has stubs for them, or only one with `is_one`.

        True if one was asked for, and dispatched.
        """
        sequences = scheduler.sequences
        while scheduler.pending or sequences is not None or is_one:
            chosen = scheduler.next_dispatch(now_ns)
            if sequences is not None:
                self._notify_ended_sequences(sequences)
            if chosen is None:
                self._await_due(scheduler)
                return False
            instance, requests = chosen
            for request in requests:
                if request.parent is not None:
                    self._begun.begin_step(request.root.key, request.id)
            batch = Batch(next(self._numbers), requests, now_ns)
            works = instance.dispatch(batch)
            if sequences is not None:
                works = sequences.complete(batch, works, self._numbers)
            earlier = self._outbox.batched_requests.setdefault(instance.serial, works)
            if earlier is not works:
                earlier += works
            if scheduler.generation.max_execution_ns:  # most have none, and need no call
                self._start_execution_timer(instance, scheduler.generation, batch)
            if is_one:
                return True
        scheduler.timer_ns = 0  # nothing waits, and it would cost a turn
        return False

    def _end_idle_sequences(self, scheduler: Scheduler, now_ns: int) -> None:
        """End sequences whose idle time is over, even if no instance has its turn."""
        if scheduler.sequences is not None:
            scheduler.sequences.end_idle(now_ns)
            scheduler.sequences.assignment.end_delays(now_ns)
            if scheduler.rate is not None:
                scheduler.rate.is_waiting &= not scheduler.rate.may_begin(now_ns)
            self._notify_ended_sequences(scheduler.sequences)
            self._await_due(scheduler)

    def _await_due(self, scheduler: Scheduler) -> None:
        """Check a generation again when its next batch has waited long enough."""
        due_ns, timer_ns = scheduler.due_ns, scheduler.timer_ns
        if due_ns == timer_ns:
            return
        is_often_put_off = scheduler.sequences is not None or scheduler.placement.is_limited
        if is_often_put_off and (not due_ns or 0 < timer_ns <= due_ns):
            return  # a turn too many once costs less than a timer for each request
        scheduler.timer_ns = due_ns
        if due_ns:
            self._timers.start(due_ns, scheduler=scheduler)

    def _notify_ended_sequences(self, sequences: SequenceBatcher) -> None:
        """Send stubs the ended sequences before they get more requests of any sequence."""
        for serial, work in sequences.pop_ended():
            self._outbox.batched_requests.setdefault(serial, []).append((work, b""))

    def _start_execution_timer(
        self, instance: Instance, generation: BrokerGeneration, batch: Batch
    ) -> None:
        if generation.max_execution_ns:
            self._timers.start(
                batch.dispatched_ns + generation.max_execution_ns,
                instance=instance,
                batch=batch.number,
            )

    def await_hello(self, instance: Instance, generation: BrokerGeneration, now_ns: int) -> None:
        """Wait for a stub's hello, but not for ever.

        A stub that hangs in an execution never sends its hello.
        """
        instance.await_hello(now_ns, self._epoch)
        self._start_execution_timer(instance, generation, instance.batches[EARLIER])

    def arrive(self, instance: Instance, scheduler: Scheduler, peer: Peer, now_ns: int) -> None:
        """Add a stub after its hello; it may be executing an earlier broker's batch."""
        since_ns = instance.batches[EARLIER].dispatched_ns if instance.batches else now_ns
        instance.arrive(peer.concurrency)
        if instance.is_idle and peer.executing:
            instance.earlier = peer.executing
            batch = Batch(EARLIER, [], since_ns)
            instance.dispatch(batch)
            self._start_execution_timer(instance, scheduler.generation, batch)
        elif instance.is_idle:
            scheduler.placement.become_idle(instance)
        self.mark_for_dispatch(scheduler.generation)

    def finish_batch(
        self, instance: Instance, scheduler: Scheduler, executed: wire.Executed, now_ns: int
    ) -> None:
        """Count a batch whose execute() has returned; its instance begins the next or is idle."""
        batch, busy_ns = instance.finish_batch(executed.batch, now_ns)
        scheduler.generation.busy_ns += busy_ns
        if not instance.has_executed:
            instance.has_executed = True
            self._outbox.supervisor.append(wire.FirstExecutionDone(instance.serial))
        scheduler.generation.statistics.record_execution(batch, executed)
        execution_ns = executed.input_ns + executed.infer_ns + executed.output_ns
        scheduler.placement.finish_batch(instance, execution_ns)
        if scheduler.queue.choice is not None:
            scheduler.learn(batch, busy_ns, now_ns)
        if instance.batches:
            instance.begin_next(now_ns)

    def run_out(self, instance: Instance, generation: BrokerGeneration) -> None:
        """Give up an instance that executes for longer than its model allows; it will be killed."""
        if instance.state not in _MAY_RUN_OUT:
            return
        instance.enter(InstanceEvent.RAN_OUT)
        allowed = generation.max_execution_ns / 1e9
        text = f"execute() took longer than max_execution_seconds ({allowed:g})"
        reason = Reason.of(Kind.EXECUTION_TIMEOUT, text, limit_s=allowed)
        self._outbox.supervisor.append(wire.ExecutionOverdue(instance.serial, reason))
