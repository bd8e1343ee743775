"""The broker's decisions: messages and the time come in, messages for the outbox come out.

There is no I/O here: `service.py` passes decoded messages in and empties `outbox`. Each admitted
request gets exactly one final answer, whatever process dies. The core builds the parts and notifies
them of events; they get the state, and the other parts that they use, through their constructors.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from zmqtriton.broker.ensembles.scheduler import EnsembleScheduler
from zmqtriton.broker.memory.blocks import inputs_in
from zmqtriton.broker.memory.cache_lookup import CacheLookup
from zmqtriton.broker.metrics import statistics
from zmqtriton.broker.metrics.model_metrics import ReportedMetrics
from zmqtriton.broker.metrics.reports import MetricReports
from zmqtriton.broker.peers import Peer
from zmqtriton.broker.requests.answers import CANCELLED, Answers
from zmqtriton.broker.requests.deadlocks import Deadlocks
from zmqtriton.broker.requests.inflight import InflightRequest, RequestState
from zmqtriton.broker.requests.lifecycle import Lifecycle
from zmqtriton.broker.requests.recovery import Recovery
from zmqtriton.broker.requests.waiting_for_load import WaitingForLoad
from zmqtriton.broker.scheduling.dispatch import Dispatch
from zmqtriton.broker.scheduling.instances import EARLIER, ExecutionProgress, Instance, StreamLimit
from zmqtriton.broker.scheduling.rate_limiter import RateLimiter
from zmqtriton.broker.scheduling.retirement import Retirement
from zmqtriton.broker.sequences.admission import SequenceAdmission
from zmqtriton.broker.state import BrokerState
from zmqtriton.broker.timers import Timers
from zmqtriton_floor import wire
from zmqtriton_floor.errors import ProtocolError, Unavailable, ZmqTritonError
from zmqtriton_floor.settings.broker import BrokerSettings

_EXPIRED = Unavailable("Request timeout expired")

_DEFAULTS = BrokerSettings()
#: Number of outcomes in a stub's message after which the replies so far are sent. Their receivers
#: work on them while the broker handles the next ones.
_SOME_ANSWERS = 8


class BrokerCore(BrokerState):
    """The state, the parts that work on it, and the effect of each event on them."""

    #: Time when tick() has work to do, if no other event comes first; None if it has none.
    due_ns: int | None = None

    def __init__(self) -> None:
        super().__init__()
        #: Called in the middle of a message with many outcomes, so that the replies so far can be
        #: sent.
        self.on_some_replies: Callable[[], None] = lambda: None
        self.model_metrics = metrics = ReportedMetrics(self.outbox)
        self._timers = timers = Timers()
        self.rate_limiter = rates = RateLimiter(self.generations.schedulers, self.awaited)
        self._dispatch = dispatch = Dispatch(self, timers, rates)
        self._lifecycle = lifecycle = Lifecycle(self, timers, dispatch)
        self.deadlocks = deadlocks = Deadlocks(self, lifecycle)
        self.answers = answers = Answers(self, deadlocks)
        self.cache_lookup = cache_lookup = CacheLookup(self, lifecycle, answers)
        self.recovery = recovery = Recovery(self, lifecycle)
        self.ensembles = EnsembleScheduler(self, lifecycle, cache_lookup)
        self._sequence_admission = SequenceAdmission(self, lifecycle, answers, recovery)
        self.waiting_for_load = WaitingForLoad(self, self.infer, answers)
        lifecycle.connect(
            answers=answers,
            cache_lookup=cache_lookup,
            deadlocks=deadlocks,
            ensembles=self.ensembles,
            recovery=recovery,
            sequence_admission=self._sequence_admission,
            waiting_for_load=self.waiting_for_load,
        )
        self._retirement = Retirement(self, answers, cache_lookup, recovery)
        self._reports = MetricReports(self, cache_lookup, rates, metrics)

    def configure(
        self, epoch: int, settings: BrokerSettings = _DEFAULTS, clock: Callable[[], int] = lambda: 0
    ) -> None:
        """Apply the settings of the Bootstrap.

        Batch numbers keep growing from one broker to the next, because the stubs' progress pages
        rely on it.
        """
        self.generations.configure(settings, clock)
        self.cache_lookup.configure(settings.cache, clock)
        self._dispatch.begin_epoch(epoch)
        self._sequence_admission.epoch = self.blocks.epoch = epoch
        self.recovery.begin(epoch, settings.serving_roles)
        # a refusal that has not left is no answer yet: the next broker gets its request again
        self.recovery.once_over(
            lambda: self.outbox.once_delivered.append(self.begun.forget_earlier)
        )
        self.rate_limiter.configure(settings.rate)
        self.limits.configure(settings.limits)
        self.waiting_for_load.configure(settings.on_demand)

    # ------------------------------------------------------- peers and models

    def expect(self, message: wire.ExpectPeer) -> None:
        self.peers[message.serial] = Peer(message)

    def authenticate(self, message: wire.Hello) -> None:
        """Find the peer that has this token. Raises ProtocolError for a stranger."""
        peer = self.peers.get(message.serial)
        if peer is None or not peer.has_token(message.token):
            raise ProtocolError(f"Hello: {message.serial} is unknown, or its token is wrong")

    def connected(self, message: wire.Hello, bodies: list[bytes], now_ns: int) -> None:
        """Process a stub's hello, with requests that it may have from an earlier broker."""
        serial = message.serial
        if len(bodies) != len(message.unconfirmed):
            raise ProtocolError("Hello: number of bodies and of unconfirmed outcomes differ")
        self.peers[serial].arrive(message)
        answered = list(zip(message.unconfirmed, bodies, strict=True))
        self.recovery.take_hello(serial, message.received, answered, now_ns)
        instance = self.instances.get(serial)
        if instance is not None:
            self._arrive(instance, now_ns)

    def add_generation(self, message: wire.AddGeneration) -> None:
        self._sequence_admission.serve(self.generations.add_or_update(message))

    def attach(
        self, message: wire.AttachInstance, now_ns: int, progress: ExecutionProgress | None = None
    ) -> None:
        generation = self.generations.by_number.get(message.generation)
        peer = self.peers.get(message.serial)
        if generation is None or peer is None:
            if progress is not None:
                progress.close()
            return  # the stub was removed, or died, before this message arrived
        instance = Instance(message.serial, message.instance, message.generation, progress)
        scheduler = self.generations.schedulers[message.generation]
        if generation.max_streams:
            instance.streams = StreamLimit(generation.max_streams, self.recovery.count_received)
        scheduler.instances[instance.serial] = instance
        self.rate_limiter.join(instance, scheduler, message.resources)
        self.instances[instance.serial] = instance
        if peer.is_connected:
            self._arrive(instance, now_ns)
        else:
            self._dispatch.await_hello(instance, generation, now_ns)

    def _arrive(self, instance: Instance, now_ns: int) -> None:
        scheduler = self.generations.schedulers[instance.generation]
        self._dispatch.arrive(instance, scheduler, self.peers[instance.serial], now_ns)
        self.recovery.resolve_waiting(now_ns)
        if instance.is_dismissed:
            self._retirement.dismiss(instance)
        self._dispatch.dispatch_marked(now_ns)

    def retire(self, message: wire.Retire) -> None:
        self._retirement.retire(message)

    def rest_limits(self, message: wire.LimitsRest) -> None:
        if message.serial in self.instances:
            self.instances[message.serial].rests = bool(message.is_on)

    def remove(self, message: wire.RemoveGeneration, now_ns: int) -> None:
        generation = self.generations.remove(message.generation)
        if generation is None:
            return
        self._retirement.close(generation)
        self._reports.generation_removed(generation)
        error = Unavailable(message.reason)
        scheduler = self.generations.schedulers[generation.number]
        for instance in scheduler.instances.values():
            self.instances.pop(instance.serial, None)
            if not instance.has_arrived:
                self.recovery.note_silent_death(generation, None)
            for request in itertools.chain(*instance.die()):
                self._lifecycle.refuse(request, error, statistics.OTHER, now_ns)
        self._retirement.tell_settled(generation)
        self.recovery.resolve_waiting(now_ns)  # what it queues is refused like the rest
        self.ensembles.remove(generation, error, now_ns)
        for request in scheduler.queued():
            if request.state is RequestState.QUEUED:  # not dropped with another step
                self._lifecycle.refuse(request, error, statistics.OTHER, now_ns)
        del self.generations.schedulers[generation.number]
        self._dispatch.dispatch_marked(now_ns)

    def stop_giving_to(self, serial: int) -> None:
        """Send nothing more to a process that is dead or unreachable.

        `remove_peer()` follows once all its messages were read.
        """
        instance = self.instances.get(serial)
        if instance is not None:
            instance.stop_giving()

    def remove_peer(self, message: wire.PeerDied, now_ns: int) -> None:
        """Remove a dead process: requests that it executed fail, and its own are cancelled."""
        instance = self.instances.pop(message.serial, None)
        error = Unavailable(message.reason)
        if instance is not None:
            scheduler = self.generations.schedulers[instance.generation]
            generation = scheduler.generation
            scheduler.placement.remove(instance)
            generation.busy_ns += instance.take_busy_ns(now_ns)
            error = instance.loss(message.reason)
            if not instance.has_arrived:
                self.recovery.note_silent_death(generation, instance.progress)
            lost, waiting = self._sequence_admission.lose(instance, *instance.die(), error)
            if message.guest in self.peers:
                self.blocks.keep_read(message.serial, message.guest, lost)
            for request in lost:
                self._lifecycle.refuse(request, error, statistics.BACKEND, now_ns)
            self._put_back(instance, waiting, now_ns)
            self._retirement.tell_settled(generation, message.serial)
            self.recovery.resolve_waiting(now_ns)
            self._dispatch.dispatch_marked(now_ns)
        self.model_metrics.forget_peer(message.serial)
        self.limits.tokens.forget_peer(message.serial)
        peer = self.peers.get(message.serial)
        if peer is not None:
            self.cancel(message.serial, list(peer.requests), now_ns)
            for request in peer.requests.values():
                is_run = request.steps is not None
                inputs = self.ensembles.inputs(request) if is_run else inputs_in(request.body)
                self.blocks.keep_inputs(request, inputs)
            self.waiting_for_load.forget_peer(message.serial)
            del self.peers[message.serial]
        self.recovery.forget_peer(message.serial, error, now_ns)
        self.cache_lookup.forget_owner(message.serial)
        self.blocks.forget_peer(message.serial)

    def _put_back(self, lost: Instance, requests: list[InflightRequest], now_ns: int) -> None:
        """Queue requests again that were sent ahead and not begun; refuse cancelled ones."""
        scheduler = self.generations.schedulers[lost.generation]
        scheduler.put_back(requests)
        for request in requests:
            if request.is_cancelled:
                self._lifecycle.refuse(request, CANCELLED, statistics.CANCELED, now_ns)
            else:
                self._dispatch.start_queue_timer(request)
        self._dispatch.mark_for_dispatch(scheduler.generation)
        self._dispatch.dispatch_marked(now_ns)

    # ------------------------------------------------------------- requests

    def infer(
        self, serial: int, rows: list[wire.Request], bodies: list[bytes], now_ns: int
    ) -> None:
        """Admit each request, or refuse it at once; tick() dispatches admitted requests."""
        peer = self.peers[serial]
        if len(bodies) != len(rows):
            raise ProtocolError("Infer: number of bodies and of requests differ")
        is_stub = peer.role == "stub"
        for row, body in zip(rows, bodies):  # noqa: B905 - above, and twice as fast
            if row.id in peer.requests:
                self.traffic.malformed += 1
                continue
            try:
                generation = self.generations.find(row)
                is_client = not (is_stub or row.flags & wire.RESENT)
                if self.limits.is_reached(generation, is_client):
                    raise self._sequence_admission.overload(generation, row, now_ns)
                if row.flags & wire.HAS_REFERENCES:
                    self.blocks.check_question(row, body, self.instances.get(serial))
            except ZmqTritonError as error:
                if not self.waiting_for_load.hold(serial, row, body, error, now_ns):
                    self.answers.reject(serial, row.id, error)
                continue
            request = InflightRequest(serial, row, body, generation, now_ns)
            if is_stub:
                request.adapt_call()
                self._retirement.note_call(serial, generation)
            if request.caller_id and not self._note_caller(peer, request, now_ns):
                continue
            peer.requests[request.id] = request
            self._lifecycle.submit(request, now_ns)

    def _note_caller(self, peer: Peer, request: InflightRequest, now_ns: int) -> bool:
        """Record the request's caller; return False if a client's token has no room for it."""
        serial = request.peer
        if peer.role == "stub":
            instance = self.instances.get(serial)
            route = request.caller_peer, request.caller_id
            caller = None if instance is None else instance.open_requests.get(route)
            request.caller = None if caller is None else caller.batch
            return True
        try:
            self.limits.tokens.admit(request, self.peers, now_ns)
        except ZmqTritonError as error:
            request.generation.statistics.record_rejection(statistics.TOKEN, error.text, now_ns)
            self.answers.reject(serial, request.id, error)
            return False
        return True

    def take_token(self, serial: int, call: wire.Call) -> None:
        """Record the limits of a client's token, sent by a frontend. Raises ProtocolError."""
        if self.peers[serial].role == "stub":
            raise ProtocolError("Call: a model knows no token")
        self.limits.tokens.take_call(serial, call)

    def cancel(self, serial: int, ids: list[int], now_ns: int) -> None:
        """Cancel requests: queued ones are never executed; for others their stubs get a message."""
        for own_id in ids:
            request = self.peers[serial].requests.get(own_id)
            if request is None:
                self.waiting_for_load.cancel(serial, own_id)
            elif not request.is_cancelled:
                self._lifecycle.abandon(request, CANCELLED, statistics.CANCELED, now_ns)

    # ------------------------------------------------------------- results

    def results(self, serial: int, message: wire.Results, bodies: list[bytes], now_ns: int) -> None:
        """Handle a stub's message: answers to pass on, and ends of batches.

        tick() gives the stub more batches.
        """
        instance = self.instances.get(serial)
        outcomes, executions, rescheduled, response_counts = message
        if instance is None or len(bodies) != len(outcomes):
            raise ProtocolError(f"Results: {serial} has no instance, or sent too few bodies")
        scheduler = self.generations.schedulers[instance.generation]
        instance.note_beginnings(executions, now_ns)
        # Each row is checked by itself, so that a malformed one does not cost the others.
        for number, (outcome, body) in enumerate(zip(outcomes, bodies), 1):  # noqa: B905 - above
            request = instance.open_requests.get((outcome.peer, outcome.id))
            if request is None:
                self._take_strange_outcome(serial, outcome, body, now_ns)
            else:
                self._lifecycle.respond(serial, request, outcome, body, now_ns)
            if not number % _SOME_ANSWERS:
                self.on_some_replies()
        if rescheduled or response_counts:
            self._lifecycle.reschedule(instance, rescheduled, now_ns)
            scheduler.generation.count_responses(response_counts)
        for executed in executions:
            if executed.batch in instance.batches or EARLIER in instance.batches:
                self._dispatch.finish_batch(instance, scheduler, executed, now_ns)
            else:
                self.traffic.malformed += 1
        if instance.is_dismissed:
            self._retirement.check(instance)
        if scheduler.pending or scheduler.sequences is not None:
            self._dispatch.mark_for_dispatch(scheduler.generation)

    def _take_strange_outcome(
        self, serial: int, outcome: wire.Outcome, body: bytes, now_ns: int
    ) -> None:
        """Process an outcome of a request that the stub does not have.

        The request may be a padding request, or one of an earlier broker; other outcomes are
        malformed.
        """
        ignored = self._sequence_admission.ignore(serial, outcome)
        if not ignored and not self.recovery.keep(serial, outcome, body, now_ns):
            self.traffic.malformed += 1
            self.blocks.discard(serial, outcome)

    # ------------------------------------------------ timers and statistics

    def tick(self, now_ns: int) -> None:
        """Do all work that is due, and dispatch requests that can now begin.

        Called at the end of each turn. Parts without work are not visited.
        """
        timers, recovery, deadlocks = self._timers, self.recovery, self.deadlocks
        loads, dispatch = self.waiting_for_load, self._dispatch
        if timers.timed:
            self._run_timers(now_ns)
        if recovery.timed:
            recovery.tick(now_ns)
        if deadlocks.timed:
            deadlocks.check_due(now_ns)
        if loads.timed:
            loads.refuse_late(now_ns)
        if dispatch.marked or self.rate_limiter.limited:
            dispatch.dispatch_marked(now_ns)
        if deadlocks.fresh:
            deadlocks.check_new(now_ns)
            dispatch.dispatch_marked(now_ns)  # a refusal may have made room
        if self._retirement.is_last_call:
            self._retirement.check_last_call()
        if self.blocks.dead.changed:
            self.blocks.tell_of_the_dead()
        self.due_ns = None
        if timers.timed or recovery.timed or deadlocks.timed or loads.timed:
            parts = timers, recovery, deadlocks, loads
            self.due_ns = min(
                filter(None, (part.next_due_ns() for part in parts if part.timed)), default=None
            )

    def _run_timers(self, now_ns: int) -> None:
        while timer := self._timers.pop_due(now_ns):
            if timer.request is not None and timer.in_queue:
                if not self._dispatch.delay(timer.request):
                    scheduler = self.generations.schedulers[timer.request.generation.number]
                    error = scheduler.refusal(_EXPIRED)
                    scheduler.generation.statistics.record_refusal(statistics.QUEUE_TIMEOUT)
                    self._lifecycle.refuse(timer.request, error, statistics.REJECTED, now_ns)
            elif timer.request is not None:
                self._lifecycle.expire(timer.request, now_ns)
            elif timer.instance is not None:
                generation = self.generations.by_number[timer.instance.generation]
                if timer.instance.rests:
                    again_ns = now_ns + generation.max_execution_ns
                    self._timers.start(again_ns, instance=timer.instance, batch=timer.batch)
                else:
                    self._dispatch.run_out(timer.instance, generation)
            elif timer.scheduler is not None:
                timer.scheduler.timer_ns = 0
                self._sequence_admission.check_timeouts(timer.scheduler, now_ns)
                self._dispatch.mark_for_dispatch(timer.scheduler.generation)

    def ask_statistics(self, serial: int, message: wire.AskStatistics, *times_ns: int) -> None:
        """Answer a request for counters. The times are described at `MetricReports.answer`."""
        self.outbox.asides.append((serial, self._reports.answer(message, *times_ns)))

    def pass_progress(self, serial: int, progress: wire.Progress) -> None:
        """Send a request's progress to the peer that made it, if its client wants stage times."""
        request = self.instances[serial].open_requests.get((progress.peer, progress.id))
        if request is not None and request.flags & wire.WANT_STAGES:
            self.outbox.asides.append((request.peer, progress))

    def grant_lease(self, serial: int, message: wire.Lease) -> None:
        """Lease blocks to a stub, which then answers the request that brought the blocks."""
        instance = self.instances.get(serial)
        if instance is None:
            raise ProtocolError(f"Lease: {serial} has no instance")
        self.blocks.grant_requested_lease(instance, message.blocks)

    def acknowledge(self, serial: int, message: wire.StreamAcks) -> None:
        """Let the stubs of the streams that a peer reads send more."""
        requests = self.peers[serial].requests
        for ack in message.acks:
            request = requests.get(ack.id)
            if request is None:
                continue
            if request.steps is not None:
                self.ensembles.acknowledge_responses(request, ack.responses, ack.passed)
            elif request.stub:
                self.outbox.stream_acks.setdefault(request.stub, []).append(
                    ack._replace(peer=serial)
                )
