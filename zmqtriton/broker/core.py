"""The broker's brain: what came in and what time it is → what goes out. Does no I/O.

`service.py` hands it decoded messages and empties `outbox`. Each admitted request gets exactly one
final answer, whatever dies: every way out of a request leads through `answers`.
"""

from __future__ import annotations

import itertools

from zmqtriton.broker.clock import Clock, no_clock
from zmqtriton.broker.ensembles.scheduler import Ensembles
from zmqtriton.broker.memory.blocks import Blocks
from zmqtriton.broker.memory.cache_lookup import Caching
from zmqtriton.broker.metrics import statistics
from zmqtriton.broker.metrics.model_metrics import Measures
from zmqtriton.broker.metrics.reports import Traffic, report
from zmqtriton.broker.outbox import Outbox
from zmqtriton.broker.peers import Peer
from zmqtriton.broker.requests.answers import CANCELLED, Answers, too_many
from zmqtriton.broker.requests.deadlocks import Circles
from zmqtriton.broker.requests.inflight import Inflight, RequestState
from zmqtriton.broker.requests.limits import Limits
from zmqtriton.broker.requests.recovery import Recovery
from zmqtriton.broker.requests.waiting_for_load import Demands
from zmqtriton.broker.scheduling.dispatch import Dispatch
from zmqtriton.broker.scheduling.generation import Generation
from zmqtriton.broker.scheduling.generations import Generations
from zmqtriton.broker.scheduling.instances import HasBegun, Instance
from zmqtriton.broker.scheduling.rate_limiter import Rates
from zmqtriton.broker.scheduling.rescheduling import Iterations
from zmqtriton.broker.scheduling.retirement import Retirement
from zmqtriton.broker.sequences.admission import Sequencing
from zmqtriton.broker.timers import Timers
from zmqtriton_floor import wire
from zmqtriton_floor.errors import ProtocolError, Unavailable, ZmqTritonError

_EXPIRED = Unavailable("Request timeout expired")


class Core:
    """All of the broker's state."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.peers: dict[int, Peer] = {}
        self.generations = Generations()
        self.instances: dict[int, Instance] = {}
        #: Dropped because they did not decode or came from where they may not.
        self.malformed = 0
        self.limits = Limits()
        self.blocks = Blocks(self.outbox, self.peers)
        self.traffic = Traffic()
        self.answers = Answers(self)
        self.demands = Demands(self)
        self.recovery = Recovery(self)
        self.ensembles = Ensembles(self)
        self.caching = Caching(self)
        self.measures = Measures(self.outbox)
        self._timers = Timers()
        self.rates = Rates(self.generations)
        self._dispatch = Dispatch(self.outbox, self._timers, self.rates)
        self._iterations = Iterations(self)
        self._sequencing = Sequencing(self)
        self._retirement = Retirement(self)
        self.circles = Circles(self)
        self.rates.is_urgent = self.circles.is_awaited

    def begin(self, epoch: int, settings: str = "{}", clock: Clock = no_clock) -> None:
        """Numbers of batches grow from one broker to the next, as the stubs' pages need it."""
        self.generations.begin(settings, clock)
        self.caching.begin(settings, clock)
        self._dispatch.number_from(epoch << 40)
        self._sequencing.epoch = self.blocks.epoch = epoch
        for part in (self.rates, self.limits, self.demands):
            part.begin(settings)

    # ------------------------------------------------------- peers and models

    def expect(self, message: wire.ExpectPeer) -> None:
        self.peers[message.serial] = Peer(message)

    def recognise(self, message: wire.Hello) -> None:
        """Raises ProtocolError for a stranger."""
        peer = self.peers.get(message.serial)
        if peer is None or not peer.shows(message.token):
            raise ProtocolError(f"Hello: {message.serial} is not expected, or not with this token")

    def connected(self, message: wire.Hello, bodies: list[bytes], now_ns: int) -> None:
        """A stub said hello where stubs do, and perhaps what it had from an earlier broker."""
        serial = message.serial
        if len(bodies) != len(message.unconfirmed):
            raise ProtocolError("Hello: as many bodies as answers are needed")
        self.peers[serial].arrive(message)
        answered = zip(message.unconfirmed, bodies, strict=True)
        self.recovery.hear(serial, message.received, answered, now_ns)
        instance = self.instances.get(serial)
        if instance is not None:
            self._arrive(instance, now_ns)

    def serve(self, message: wire.AddGeneration) -> None:
        self._sequencing.serve(self.generations.serve(message))

    def attach(
        self, message: wire.AttachInstance, now_ns: int, progress: HasBegun | None = None
    ) -> None:
        generation = self.generations.get(message.generation)
        peer = self.peers.get(message.serial)
        if generation is None or peer is None:
            return  # removed, or dead, before the news of it were out
        instance = Instance(message.serial, message.instance, message.generation, progress)
        generation.instances[instance.serial] = instance
        self.rates.join(instance, generation, message.resources)
        self.instances[instance.serial] = instance
        if peer.is_connected:
            self._arrive(instance, now_ns)
        else:
            self._dispatch.await_hello(instance, generation, now_ns)

    def _arrive(self, instance: Instance, now_ns: int) -> None:
        generation = self.generations[instance.generation]
        self._dispatch.arrive(instance, generation, self.peers[instance.serial], now_ns)
        self.recovery.proceed(now_ns)
        if instance.is_dismissed:
            self._retirement.dismiss(instance)
        self._dispatch.proceed(now_ns)

    def retire(self, message: wire.Retire) -> None:
        self._retirement.retire(message)

    def remove(self, message: wire.RemoveGeneration, now_ns: int) -> None:
        generation = self.generations.remove(message.generation)
        if generation is None:
            return
        self._retirement.close(generation)
        error = Unavailable(message.reason)
        self.ensembles.remove(generation, error, now_ns)
        for request in generation.queued():
            if request.state is RequestState.QUEUED:  # not dropped with another step meanwhile
                self.refuse(request, error, statistics.OTHER, now_ns)
        for instance in generation.instances.values():
            self.instances.pop(instance.serial, None)
            for request in itertools.chain(*instance.die()):
                self.refuse(request, error, statistics.OTHER, now_ns)
        self.recovery.proceed(now_ns)
        self._dispatch.proceed(now_ns)

    def part(self, serial: int) -> None:
        """A process is dead, and is given nothing more; gone() is for when all that it had sent has
        been taken."""
        instance = self.instances.get(serial)
        if instance is not None:
            instance.part()

    def gone(self, message: wire.PeerDied, now_ns: int) -> None:
        """A process is dead: what it executed fails, what it asked for is cancelled."""
        instance = self.instances.pop(message.serial, None)
        if instance is not None:
            generation = self.generations[instance.generation]
            generation.instances.pop(instance.serial, None)
            generation.busy_ns += instance.count_busy(now_ns)
            error = instance.loss(message.reason)
            if not instance.has_arrived:
                self.recovery.lose(generation)
            lost, waiting = self._sequencing.lose(instance, *instance.die(), error)
            for request in lost:
                self.refuse(request, error, statistics.BACKEND, now_ns)
            self._put_back(generation, waiting, now_ns)
            self.recovery.proceed(now_ns)
            self._dispatch.proceed(now_ns)
        self.measures.forget(message.serial)
        peer = self.peers.get(message.serial)
        if peer is not None:
            self.cancel(message.serial, list(peer.requests), now_ns)
            self.blocks.keep(message.serial, peer.requests.values())
            self.demands.forget(message.serial)
            del self.peers[message.serial]
        self.recovery.forget(message.serial, now_ns)
        self.caching.bury(message.serial)
        self.blocks.bury(message.serial)

    def _put_back(self, generation: Generation, requests: list[Inflight], now_ns: int) -> None:
        """Requests that were sent ahead and not begun wait again, unless nobody wants them."""
        generation.put_back(requests)
        for request in requests:
            if request.is_cancelled:
                self.refuse(request, CANCELLED, statistics.CANCELED, now_ns)
            else:
                self._dispatch.limit_wait(request)
        self._dispatch.touch(generation)
        self._dispatch.proceed(now_ns)

    # ------------------------------------------------------------- requests

    def infer(
        self, serial: int, rows: list[wire.Request], bodies: list[bytes], now_ns: int
    ) -> None:
        """Admits each request, or refuses it at once."""
        peer = self.peers[serial]
        if len(bodies) != len(rows):
            raise ProtocolError("Infer: as many bodies as requests are needed")
        for row, body in zip(rows, bodies, strict=True):
            if row.id in peer.requests:
                self.malformed += 1
                continue
            try:
                generation = self.generations.find(row)
                is_client = peer.role != "stub" and not row.flags & wire.RESENT
                self._sequencing.check_room(generation, row, is_client)
                self.blocks.check_question(row, body, self.instances.get(serial))
            except ZmqTritonError as error:
                if not self.demands.hold(serial, row, body, error, now_ns):
                    self.answers.deny(serial, row.id, error)
                continue
            if peer.role == "stub":
                row = generation.adopt(row)
                self._retirement.note_call(serial, generation)
            request = Inflight(serial, row, body, generation, now_ns)
            peer.requests[row.id] = request
            self.submit(request, now_ns)
        self._proceed(now_ns)

    def _proceed(self, now_ns: int) -> None:
        self._dispatch.proceed(now_ns)
        self.circles.proceed(now_ns)

    def submit(self, request: Inflight, now_ns: int) -> None:
        """Admits a request; it is dispatched when all of this event has been taken."""
        row, generation = request.row, request.generation
        self.limits.admitted(request)
        generation.unanswered += 1
        generation.statistics.last_arrival_ns = now_ns
        if generation.is_cached and self.caching.answer(request, now_ns):
            return
        if row.deadline_ns:
            self._timers.start(row.deadline_ns, request=request)
        if request.peer in self.instances or request.call is not None:
            self.circles.add(request, now_ns)
        if generation.plan is not None:
            self.ensembles.start(request, now_ns)
        elif generation.sequences is not None:
            self._sequencing.admit(request, now_ns)
        elif row.flags & wire.RESENT:
            generation.hold(request)
            self.recovery.wait(request)
            self.recovery.proceed(now_ns)
        else:
            generation.enqueue(request)
            if request.level is not None and request.level.is_limited:
                self._limit(request, now_ns)
        self._dispatch.touch(generation)

    def _limit(self, request: Inflight, now_ns: int) -> None:
        """It is in a queue that has limits."""
        self._dispatch.limit_wait(request)
        if not self._dispatch.has_room(request, now_ns):
            self.answers.forgo(request)  # order is kept among those that were admitted
            self.refuse(request, too_many(request), statistics.REJECTED, now_ns)

    def await_turn(self, request: Inflight) -> None:
        """It was queued, and is dispatched at the end of this event, or later."""
        self._dispatch.limit_wait(request)
        self._dispatch.touch(request.generation)

    def cancel(self, serial: int, ids: list[int], now_ns: int) -> None:
        """A queued request is never executed; an executing one's stub is told."""
        for own_id in ids:
            request = self.peers[serial].requests.get(own_id)
            if request is None:
                self.demands.cancel(serial, own_id)
            elif not request.is_cancelled:
                self.abandon(request, CANCELLED, statistics.CANCELED, now_ns)

    def abandon(self, request: Inflight, error: ZmqTritonError, reason: str, now_ns: int) -> None:
        """Nobody wants the answer any more; it still comes."""
        request.is_cancelled = True
        self.answers.forgo(request)
        if request.state is RequestState.QUEUED:
            self.refuse(request, error, reason, now_ns)
        elif request.run is not None:
            self.ensembles.abandon(request.run, error, reason, now_ns)
        elif request.instance is not None:
            self.outbox.abandon(request.instance.serial, request.route)

    # ------------------------------------------------------------- results

    def results(self, serial: int, message: wire.Results, bodies: list[bytes], now_ns: int) -> None:
        """What a stub sent: answers to pass on, and that it is free again."""
        instance = self.instances.get(serial)
        if instance is None:
            raise ProtocolError(f"Results: {serial} has no instance")
        if len(bodies) != len(message.outcomes):
            raise ProtocolError("Results: as many bodies as outcomes are needed")
        generation = self.generations[instance.generation]
        # Row by row: what makes no sense must not take along what does.
        for outcome, body in zip(message.outcomes, bodies, strict=True):
            request = instance.open.get((outcome.peer, outcome.id))
            if request is None:
                ignored = self._sequencing.ignore(serial, outcome)
                if not ignored and not self.recovery.keep(serial, outcome, body, now_ns):
                    self.malformed += 1
                    self.blocks.discard(serial, outcome)
            else:
                self.take_outcome(serial, request, outcome, body, now_ns)
        if message.rescheduled:
            self._iterations.take(instance, message.rescheduled, now_ns)
        generation.count_responses(message.response_counts)
        for executed in message.executed:
            if instance.is_in(executed.batch):
                self._dispatch.executed(instance, generation, executed, now_ns)
            else:
                self.malformed += 1
        if instance.is_dismissed:
            self._retirement.check(instance)
        self._dispatch.touch(generation)
        self._proceed(now_ns)

    def take_outcome(
        self, source: int, request: Inflight, outcome: wire.Outcome, body: bytes, now_ns: int
    ) -> None:
        if outcome.blocks or outcome.flags & wire.HAS_REFERENCES:
            outcome, body = self.blocks.take(source, request, outcome, body)
        self.respond(source, request, outcome, body, now_ns)

    def respond(
        self, source: int, request: Inflight, outcome: wire.Outcome, body: bytes, now_ns: int
    ) -> None:
        """What a stub or an ensemble has to say about a request, for whoever asked."""
        counters = request.generation.statistics
        if outcome.code:
            request.has_failed, request.error = True, outcome.text
        if request.miss is not None:
            self.caching.keep(source, request, outcome, body)
        if request.generation.is_decoupled or counters.times_responses:
            counters.responded(request, outcome, bool(body or outcome.code), now_ns)
        if outcome.flags & wire.FINAL:
            if request.state is RequestState.QUEUED:  # to be executed again, which is over
                request.generation.leave_queue(request)
            if request.has_failed:
                counters.failed(request, statistics.BACKEND, now_ns)
            else:
                counters.succeeded(request, now_ns)
            self.answers.finish(request)
        if request.call is not None:
            self.ensembles.take(request, outcome, body, now_ns)
            return
        row = (outcome.id, outcome.code, outcome.text, outcome.flags, outcome.number, source)
        self.answers.reply(request, wire.Reply(*row), body)

    def refuse(self, request: Inflight, error: ZmqTritonError, reason: str, now_ns: int) -> None:
        """The final answer is an error of the broker's own."""
        generation, sequences = request.generation, request.generation.sequences
        later = sequences.break_off(request, error) if sequences is not None else []
        generation.statistics.failed(request, reason, now_ns)
        request.error = error.text
        if request.state is RequestState.QUEUED:
            generation.leave_queue(request)
            if request.instance is not None:  # and is not to be executed again
                self.outbox.abandon(request.instance.serial, request.route)
        self.answers.finish(request)
        if request.call is not None:
            outcome = wire.Outcome(*request.route, error.number, error.text, wire.FINAL)
            self.ensembles.take(request, outcome, b"", now_ns)
        else:
            self.answers.refuse(request, error)
        for other in later:
            self.refuse(other, error, reason, now_ns)
        self._dispatch.touch(generation)

    # ------------------------------------------------ timers and statistics

    def next_timer_ns(self) -> int | None:
        """When tick() has something to do, unless something else comes first."""
        parts = (self._timers, self.recovery, self.circles, self.demands)
        times = [part.next_ns() for part in parts]
        return min((at_ns for at_ns in times if at_ns is not None), default=None)

    def tick(self, now_ns: int) -> None:
        """Everything whose time has come."""
        while True:
            timer = self._timers.pop_due(now_ns)
            if timer is None:
                break
            if timer.request is not None and timer.in_queue:
                if not self._dispatch.delay(timer.request):
                    self.refuse(timer.request, _EXPIRED, statistics.REJECTED, now_ns)
            elif timer.request is not None:
                if not timer.request.is_cancelled:
                    self.abandon(timer.request, _EXPIRED, statistics.REJECTED, now_ns)
            elif timer.instance is not None:
                generation = self.generations[timer.instance.generation]
                self._dispatch.run_out(timer.instance, generation)
            elif timer.generation is not None:
                timer.generation.timer_ns = 0
                self._sequencing.look(timer.generation, now_ns)
                self._dispatch.touch(timer.generation)
        for part in (self.recovery, self.circles, self.demands, self._retirement):
            part.look(now_ns)
        self._dispatch.proceed(now_ns)

    def ask_statistics(self, serial: int, message: wire.AskStatistics, *times_ns: int) -> None:
        self.outbox.asides.append((serial, report(self, serial, message, *times_ns)))
