"""A request's way through the broker: submitted, responded to, refused or abandoned.

A request ends twice. Its answer ends once, finally, through `Answers`; its execution ends when its
stub, or the last step of its run, has answered, because until then these read the memory of the
asking peer. Both are one moment unless a deadline or a cancelled caller separates them: then the
peer gets its answer early, and the final one, which it drops, frees the memory later. The state of
a request says what its end depends on: QUEUED on the broker, EXECUTING on a stub or on steps,
ANSWERED on nothing.

    event                QUEUED             EXECUTING in a stub      EXECUTING by steps
    dispatched           EXECUTING
    rescheduled                             QUEUED
    response             passed on          passed on                passed on
    final response       out of the queue,  ANSWERED                 ANSWERED
                         ANSWERED
    refused (its stub    out of the queue,  ANSWERED                 ANSWERED
    died, its model is   ANSWERED
    removed, no room)
    cancelled            refused            its stub must stop       each step is cancelled
    deadline passed,     refused            likewise; its peer gets  likewise; its peer gets
    caller cancelled                        an early answer          an early answer

A request that gets an early answer at its deadline is counted as failed then, and not again.
A refused request of a sequence refuses those that wait behind it in the sequence.

The methods here are these events. They count, take the request out of its queue, finish it, and
deliver the answer last, in this order: a delivery may go to an ensemble, whose next step is
submitted here, or end a run, which is answered here, and these must find everything counted. So
ensembles nest without a case of their own. Nothing is dispatched here: generations are marked, and
the end of the turn gives their instances work. The parts that requests pass through ask this one
for the next step. They exist only after it, so the core hands them over by `connect`.
"""

from __future__ import annotations

from collections.abc import Mapping

from zmqtriton.broker.ensembles.scheduler import EnsembleScheduler
from zmqtriton.broker.memory.cache_lookup import CacheLookup
from zmqtriton.broker.metrics import statistics
from zmqtriton.broker.requests.answers import CANCELLED, Answers, overload_error
from zmqtriton.broker.requests.deadlocks import Deadlocks
from zmqtriton.broker.requests.inflight import ANSWERED, EXECUTING, QUEUED, InflightRequest
from zmqtriton.broker.requests.recovery import Recovery
from zmqtriton.broker.requests.waiting_for_load import WaitingForLoad
from zmqtriton.broker.scheduling.dispatch import Dispatch
from zmqtriton.broker.scheduling.instances import Instance
from zmqtriton.broker.sequences.admission import SequenceAdmission
from zmqtriton.broker.state import BrokerPart, BrokerState
from zmqtriton.broker.timers import Timers
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Cancelled, DeadlineExceeded, Unavailable, ZmqTritonError

_STEPS_LOST = Unavailable("the broker died before the rescheduled request could be executed again")
_CALLER_CANCELLED = Cancelled("request was cancelled, because the one that it was made for was")


class Lifecycle(BrokerPart):
    def __init__(self, state: BrokerState, timers: Timers, dispatch: Dispatch) -> None:
        super().__init__(state)
        self._timers = timers
        self._dispatch = dispatch

    def connect(
        self,
        *,
        answers: Answers,
        cache_lookup: CacheLookup,
        deadlocks: Deadlocks,
        ensembles: EnsembleScheduler,
        recovery: Recovery,
        sequence_admission: SequenceAdmission,
        waiting_for_load: WaitingForLoad,
    ) -> None:
        """Set the parts through which requests pass, and which themselves need this lifecycle."""
        self._answers = answers
        self._cache_lookup = cache_lookup
        self._deadlocks = deadlocks
        self._ensembles = ensembles
        self._recovery = recovery
        self._sequence_admission = sequence_admission
        self._waiting_for_load = waiting_for_load

    def submit(self, request: InflightRequest, now_ns: int) -> None:
        """Admit a request; it is dispatched at the end of the current event."""
        generation, limits = request.generation, self._limits
        scheduler = self._schedulers[generation.number]
        limits.unanswered += 1
        limits.unanswered_bytes += request.size
        generation.unanswered += 1
        generation.statistics.last_arrival_ns = now_ns
        if generation.is_cached and self._cache_lookup.answer_from_cache(request, now_ns):
            return
        if request.deadline_ns and request.parent is None:  # steps end with their ensemble
            self._timers.start(request.deadline_ns, request=request)
        if request.peer in self._instances or request.parent is not None:
            self._deadlocks.add(request, now_ns)
        is_resent = request.flags & wire.RESENT
        # stubs have yet to say whether the first step of a repeated run has begun
        if generation.plan is not None and not (
            is_resent and self._begun.step_in_doubt(request.key)
        ):
            self._ensembles.start(request, now_ns)
        elif generation.has_sequences:
            self._sequence_admission.admit(request, now_ns)
        elif is_resent:
            scheduler.hold(request)
            self._recovery.take_resent(request, now_ns)
        elif scheduler.enqueue(request):
            self._limit(request, now_ns)
        self._dispatch.marked[generation.number] = scheduler  # mark_for_dispatch(), but no call
        if request.caller is not None and request.caller.is_cancelled:
            self.end_early(request, _CALLER_CANCELLED, statistics.CANCELED, now_ns)

    def _limit(self, request: InflightRequest, now_ns: int) -> None:
        """Apply the limits of the request's queue to it."""
        self._dispatch.start_queue_timer(request)
        if not self._dispatch.has_room(request, now_ns):
            self._answers.leave_order(request)  # order is kept among admitted requests only
            request.generation.statistics.record_refusal(statistics.QUEUE_SIZE)
            error = self._schedulers[request.generation.number].refusal(overload_error(request))
            error.retry_after_ms = request.generation.wait_ms
            self.refuse(request, error, statistics.REJECTED, now_ns)

    def begin_run(self, request: InflightRequest, now_ns: int) -> None:
        """Begin a run of an ensemble that was held."""
        self._schedulers[request.generation.number].leave_queue(request)
        self._ensembles.start(request, now_ns)

    def await_turn(self, request: InflightRequest) -> None:
        """Let a queued request be dispatched at the end of the current event, or later."""
        self._dispatch.start_queue_timer(request)
        self._dispatch.mark_for_dispatch(request.generation)

    def expire(self, request: InflightRequest, now_ns: int) -> None:
        """End a request whose deadline has passed."""
        if not (request.is_abandoned or request.state is ANSWERED):
            request.generation.statistics.deadlines += 1
            error = overdue(request, self._instances, now_ns)
            if request.state is QUEUED:
                error = self._schedulers[request.generation.number].refusal(error)
            else:
                self._count_overdue(request, error, now_ns)
            self.end_early(request, error, statistics.REJECTED, now_ns)

    def _count_overdue(self, request: InflightRequest, error: ZmqTritonError, now_ns: int) -> None:
        """Count a failure whose answer leaves before the execution has ended."""
        counters = request.generation.statistics
        is_executed = is_executing(request, self._instances)
        if request.is_cancelled and not (is_executed and request.stub):
            return  # its client has left, and it ends as cancelled
        request.has_failed, request.error = True, error.text
        if is_executed:
            counters.record_overdue(request, request.deadline_ns, now_ns)
        reason = statistics.OTHER if is_executed else statistics.REJECTED
        counters.record_failure(request, reason, now_ns)
        request.is_counted = True

    def end_early(
        self, request: InflightRequest, error: ZmqTritonError, reason: str, now_ns: int
    ) -> None:
        """Abandon a request and answer the asking peer at once, even if a stub still has it."""
        if not request.is_cancelled:
            self.abandon(request, error, reason, now_ns)
        if request.state is EXECUTING and not request.is_abandoned:
            request.is_abandoned = True
            self._answers.reply_early(request, error)

    def _cancel_calls(self, request: InflightRequest, error: ZmqTritonError, now_ns: int) -> None:
        """Cancel a model's calls for a request, if no other request of its batch needs them."""
        batch, instance = request.batch, self._instances.get(request.stub)
        if batch is None or instance is None or not batch.is_cancelled:
            return
        self._waiting_for_load.cancel_calls(instance.serial, batch, _CALLER_CANCELLED)
        for call in [one for one in instance.open_calls.values() if one.caller is batch]:
            if isinstance(error, DeadlineExceeded):
                self.expire(call, now_ns)
            elif call.state is not ANSWERED:
                self.end_early(call, _CALLER_CANCELLED, statistics.CANCELED, now_ns)

    def abandon(
        self, request: InflightRequest, error: ZmqTritonError, reason: str, now_ns: int
    ) -> None:
        """Cancel a request that its caller no longer waits for; its final answer still comes."""
        request.is_cancelled = True
        self._answers.leave_order(request)
        instance = self._instances.get(request.stub)
        if instance is not None and (instance.open_calls or self._waiting_for_load.timed):
            self._cancel_calls(request, error, now_ns)
        if request.state is QUEUED:
            self.refuse(request, error, reason, now_ns)
        elif request.steps is not None:
            self._ensembles.cancel_run(request, error, reason, now_ns)
        elif request.stub:
            if not request.is_counted:
                request.generation.statistics.unawaited += 1
            self._outbox.cancel_execution(request.stub, request.key)

    def respond(
        self, source: int, request: InflightRequest, outcome: wire.Outcome, body: bytes, now_ns: int
    ) -> None:
        """Pass on a response of a stub, or of an ensemble, whose source is 0.

        Leases the memory of a stub's response; an ensemble's memory was leased with the response of
        its step.
        """
        _, own_id, code, text, flags, number, blocks = outcome
        if source and (blocks or flags & wire.HAS_REFERENCES):
            outcome, body = self._blocks.admit_outcome(source, request, outcome, body)
            _, own_id, code, text, flags, number, blocks = outcome
        generation = request.generation
        counters = generation.statistics
        if code:
            request.has_failed, request.error = True, text
        if generation.is_decoupled or counters.times_responses:
            counters.record_response(request, outcome, bool(body or code), now_ns)
        if request.miss is not None or request.flags & wire.WANT_STAGES:
            self._note_response(source, request, outcome, body, now_ns)
        if flags & wire.FINAL:
            if request.state is QUEUED:  # it was to be executed again; that is over
                self._schedulers[generation.number].leave_queue(request)
            if request.has_failed:
                counters.record_failure(request, statistics.BACKEND, now_ns)
            else:
                counters.record_success(request, now_ns)
            self._answers.finish(request)
        if request.parent is not None:
            self._ensembles.take_outcome(request, outcome, body, now_ns)
        else:
            reply = wire.make(wire.Reply, (own_id, code, text, flags, number, source))
            if generation.order is None:  # as reply() does, without the call
                self._outbox.replies.setdefault(request.peer, []).append((reply, body))
            else:
                self._answers.reply(request, reply, body)

    def _note_response(
        self, source: int, request: InflightRequest, outcome: wire.Outcome, body: bytes, now_ns: int
    ) -> None:
        """Keep a response in the cache, and tell how long it took, where that is wanted."""
        if request.miss is not None:
            self._cache_lookup.store(source, request, outcome, body)
        if request.flags & wire.WANT_STAGES:
            times = (
                stage_times_of(request, self._instances.get(request.stub), now_ns)
                if request.steps is None
                else self._ensembles.stage_times(request)
            )
            self._outbox.stage_times.append((request.peer, times))

    def reschedule(self, instance: Instance, routes: list[wire.RequestKey], now_ns: int) -> None:
        """Queue requests again for their next step, as their stub has requested.

        Until the step such a request waits like others and may be cancelled; but since it has run,
        it dies with its stub.
        """
        scheduler = self._schedulers[instance.generation]
        for route in routes:
            request = instance.open_requests.get(route)
            if request is None:
                # The client of an earlier broker has not repeated it here yet.
                outcome = wire.Outcome(*route, _STEPS_LOST.number, _STEPS_LOST.text, wire.FINAL)
                if not self._recovery.keep(instance.serial, outcome, b"", now_ns):
                    self._traffic.malformed += 1
                self._outbox.cancel_execution(instance.serial, route)
            elif request.state is not EXECUTING or not scheduler.generation.is_iterative:
                self._traffic.malformed += 1
            elif not scheduler.reschedule(request, now_ns):
                self._outbox.cancel_execution(instance.serial, route)
                self.refuse(request, _STEPS_LOST, statistics.BACKEND, now_ns)
            elif request.is_cancelled:
                self.refuse(request, CANCELLED, statistics.CANCELED, now_ns)

    def deliver(
        self, request: InflightRequest, outcome: wire.Outcome, body: bytes, now_ns: int
    ) -> None:
        """Hand a finished request's outcome to its maker: a peer or an ensemble."""
        if request.parent is not None:
            self._ensembles.take_outcome(request, outcome, body, now_ns)
        else:
            row = (outcome.id, outcome.code, outcome.text, outcome.flags, outcome.number)
            self._answers.reply(request, wire.Reply(*row), body)

    def refuse(
        self, request: InflightRequest, error: ZmqTritonError, reason: str, now_ns: int
    ) -> None:
        """Answer a request finally with an error of the broker's own."""
        generation, scheduler = request.generation, self._schedulers.get(request.generation.number)
        sequences = None if scheduler is None else scheduler.sequences
        later = [] if sequences is None else sequences.abort_after(request, error)
        request.error = error.text
        generation.statistics.record_failure(request, reason, now_ns)
        if request.state is QUEUED:
            if scheduler is not None:
                scheduler.leave_queue(request)
            if request.stub:  # and will not be executed again
                self._outbox.cancel_execution(request.stub, request.key)
        self._answers.finish(request)
        outcome = wire.Outcome(
            *request.key, error.number, error.text, wire.FINAL, error.retry_after_ms
        )
        self.deliver(request, outcome, b"", now_ns)
        for other in later:
            self.refuse(other, error, reason, now_ns)
        self._dispatch.mark_for_dispatch(generation)


def overdue(
    request: InflightRequest, instances: Mapping[int, Instance], now_ns: int
) -> DeadlineExceeded:
    """Return the error of an overdue request; call this before the request moves."""
    return DeadlineExceeded(f"Deadline Exceeded: {_where(request, instances, now_ns)}")


def _where(request: InflightRequest, instances: Mapping[int, Instance], now_ns: int) -> str:
    model = request.generation.model
    if request.steps is not None:
        within = f"in ensemble '{model}', "
        steps = [_where(step, instances, now_ns) for step in request.steps]
        return within + (steps[0] if steps else "the request waited for a step")
    if is_executing(request, instances):
        took = _seconds(now_ns - request.dispatched_ns)
        # an earlier broker may have had it for long
        took = f"at least {took}" if request.flags & wire.RESENT and not request.batch else took
        return f"model '{model}' was executing the request for {took}"
    waited = _seconds(now_ns - request.queued_ns)
    if request.is_undecided:
        return (
            f"the broker had died, and the request waited for {waited} until the instances of "
            f"'{model}' would tell whether one of them was executing it"
        )
    return f"the request waited for {waited} in the queue of '{model}'"


def is_executing(request: InflightRequest, instances: Mapping[int, Instance]) -> bool:
    """True unless the request is queued, or waits in its stub for the batch before."""
    if request.state is not EXECUTING:
        return False
    instance, batch = instances.get(request.stub), request.batch
    if instance is None or instance.concurrency > 1 or batch is None:
        return True
    return batch.number not in instance.batches or batch is next(iter(instance.batches.values()))


def _seconds(ns: int) -> str:
    return f"{max(0, ns) / 1e9:.3f} s"


def stage_times_of(
    request: InflightRequest, instance: Instance | None, now_ns: int
) -> wire.StageTimes:
    """Return the times up to now; the instance is the one that has the request.

    Only called for requests with WANT_STAGES. Of the times that the stub reports after the reply
    only the sum is known.
    """
    own_id = request.id
    queue_ns = max(0, request.dispatched_ns - request.arrived_ns)
    if instance is not None:
        for executed in instance.reported:
            batch = instance.batches.get(executed.batch)
            if batch is not None and request in batch.requests:
                times = executed.input_ns, executed.infer_ns, executed.output_ns
                return wire.StageTimes(own_id, queue_ns, *times)
    return wire.StageTimes(own_id, queue_ns, 0, max(0, now_ns - request.dispatched_ns), 0)
