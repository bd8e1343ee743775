"""The admission of requests to sequences, and how they leave them.

`batcher.py` decides; here requests are refused. Sequences that an earlier broker may have known are
distinguished from sequences that never existed.
"""

from __future__ import annotations

from zmqtriton.broker.metrics import statistics
from zmqtriton.broker.requests.answers import Answers
from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton.broker.requests.protocols import RequestLifecycle
from zmqtriton.broker.requests.recovery import Recovery
from zmqtriton.broker.scheduling.generation import BrokerGeneration
from zmqtriton.broker.scheduling.instances import Instance
from zmqtriton.broker.scheduling.scheduler import Scheduler
from zmqtriton.broker.sequences.controls import FIRST_PADDING_ID
from zmqtriton.broker.state import BrokerPart, BrokerState
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unavailable, ZmqTritonError

_LOST = Unavailable("the broker died while the sequence was going on")
_EXPIRED = Unavailable("timeout of the corresponding sequence has been expired")


class SequenceAdmission(BrokerPart):
    def __init__(
        self, state: BrokerState, lifecycle: RequestLifecycle, answers: Answers, recovery: Recovery
    ) -> None:
        super().__init__(state)
        self._lifecycle = lifecycle
        self._answers = answers
        self._recovery = recovery
        #: The epoch of this broker; the server's first has 1.
        self.epoch = 1

    def serve(self, generation: BrokerGeneration) -> None:
        sequences = self._schedulers[generation.number].sequences
        if sequences is not None and self.epoch > 1:
            first_id = self.epoch << 40
            sequences.assume_earlier_lost(_LOST, first_id, lambda: self._recovery.over_ns)

    def admit(self, request: InflightRequest, now_ns: int) -> None:
        """Queue a request in its sequence, or refuse it."""
        generation = request.generation
        scheduler = self._schedulers[generation.number]
        assert scheduler.sequences is not None
        scheduler.pending += 1
        is_resent = bool(request.flags & wire.RESENT)
        if is_resent and not generation.is_iterative:
            # What was sent after it may have been executed.
            self._lifecycle.refuse(request, _LOST, statistics.OTHER, now_ns)
            return
        try:
            scheduler.sequences.check(request)
            if is_resent:
                self._recovery.take_resent(request, now_ns)
                return
            # a step counts as the ensemble's client's
            peer = self._peers.get(request.root.peer)
            is_clients = peer is not None and peer.role != "stub"
            scheduler.sequences.admit(request, now_ns, self._outbox.warnings, is_clients=is_clients)
            if request.flags & wire.SEQUENCE_START and not generation.is_iterative:
                self._close_elsewhere(generation, request.correlation)
        except ZmqTritonError as error:
            self._lifecycle.refuse(request, error, statistics.REJECTED, now_ns)

    def _close_elsewhere(self, generation: BrokerGeneration, correlation: wire.Correlation) -> None:
        """Close the sequence of this id in the other generations of the model.

        Its client has started the sequence again, so no later request is meant for those.
        """
        for other in list(self._generations.by_number.values()):
            is_kin = self._generations.share_sequences(other, generation)
            sequences = self._schedulers[other.number].sequences
            if other is not generation and is_kin and sequences is not None:
                sequences.close(correlation)
                if other.is_retired:
                    self._answers.check_drained(other)

    def overload(self, generation: BrokerGeneration, row: wire.Request, now_ns: int) -> Unavailable:
        """Return the error of a request without room; its sequence cannot continue."""
        scheduler = self._schedulers[generation.number]
        error = scheduler.refusal(self._limits.refuse(generation, now_ns))
        error.retry_after_ms = generation.wait_ms
        if scheduler.sequences is not None and not generation.is_iterative:
            scheduler.sequences.close_after_refusal(row.correlation, error)
            if row.flags & wire.SEQUENCE_START:
                self._close_elsewhere(generation, row.correlation)
            if generation.is_retired:
                self._answers.check_drained(generation)
        return error

    def lose(
        self,
        instance: Instance,
        begun: list[InflightRequest],
        waiting: list[InflightRequest],
        error: ZmqTritonError,
    ) -> tuple[list[InflightRequest], list[InflightRequest]]:
        """Return which requests die with a dead stub, and which are executed elsewhere.

        No request of a begun sequence is executed, since the results of the earlier ones are lost.
        """
        sequences = self._schedulers[instance.generation].sequences
        if sequences is None:
            return begun, waiting
        if sequences.is_iterative:
            for request in waiting:
                sequences.recall(request)
            return begun + sequences.remove_instance(instance, error), waiting
        return begun + waiting + sequences.remove_instance(instance, error), []

    def check_timeouts(self, scheduler: Scheduler, now_ns: int) -> None:
        """Refuse requests that have waited for a slot too long, and end idle sequences."""
        if scheduler.sequences is None:
            return
        for request in scheduler.sequences.pop_expired(now_ns):
            scheduler.generation.statistics.record_refusal(statistics.QUEUE_TIMEOUT)
            self._lifecycle.refuse(request, _EXPIRED, statistics.REJECTED, now_ns)
        scheduler.sequences.end_idle(now_ns)
        if scheduler.generation.is_retired:
            self._answers.check_drained(scheduler.generation)

    def ignore(self, stub: int, outcome: wire.Outcome) -> bool:
        """Drop the outcome of a padding request; return False for other requests."""
        if outcome.peer != wire.BROKER or outcome.id < FIRST_PADDING_ID:
            return False
        self._blocks.discard(stub, outcome)
        grant = wire.StreamAck(wire.BROKER, outcome.id, outcome.number + 1)
        if not outcome.flags & wire.FINAL:
            self._outbox.stream_acks.setdefault(stub, []).append(grant)
        return True
