"""Retirement: generations, or single instances, that end once their requests are answered.

Reports the ends of both to the supervisor; and which models call which, so that it can end callers
first; and at the stop of the server, that no client has an open sequence left.
"""

from __future__ import annotations

from zmqtriton.broker.memory.cache_lookup import CacheLookup
from zmqtriton.broker.requests.answers import Answers
from zmqtriton.broker.requests.recovery import Recovery
from zmqtriton.broker.scheduling.generation import BrokerGeneration
from zmqtriton.broker.scheduling.instances import Instance
from zmqtriton.broker.state import BrokerPart, BrokerState
from zmqtriton_floor import wire


class Retirement(BrokerPart):
    def __init__(
        self, state: BrokerState, answers: Answers, cache_lookup: CacheLookup, recovery: Recovery
    ) -> None:
        super().__init__(state)
        self._answers = answers
        self._cache_lookup = cache_lookup
        self._recovery = recovery
        answers.on_drained = self.tell_settled
        #: True while the supervisor waits until no client has an open sequence.
        self.is_last_call = False

    def retire(self, message: wire.Retire) -> None:
        generation = self._generations.by_number.get(message.generation)
        instance = self._instances.get(message.serial)
        if not message.generation:
            self.is_last_call = True  # the end of the turn checks for it
        elif generation is None or (message.serial and instance is None):
            self._outbox.supervisor.append(wire.Drained(message.generation, message.serial))
        elif instance is not None:
            self.dismiss(instance)
        else:
            self.close(generation)
            self._answers.check_drained(generation)

    def close(self, generation: BrokerGeneration) -> None:
        """Let a generation accept no more requests.

        Generations that it has replaced need not wait for their open sequences: no client can
        continue these, unless this generation was replaced itself.
        """
        generation.is_retired = True
        self._cache_lookup.forget_generation(generation)
        for earlier in self._generations.replaced(generation):
            self._answers.check_drained(earlier)

    def check_last_call(self) -> None:
        """Check whether clients still have open sequences.

        Call this after each event while `is_last_call` is set.
        """
        every = (scheduler.sequences for scheduler in self._generations.schedulers.values())
        if not any(sequences and sequences.has_open_client_sequence for sequences in every):
            self.is_last_call = False
            self._outbox.supervisor.append(wire.Drained(0))

    def dismiss(self, instance: Instance) -> None:
        """Give an instance no new work."""
        instance.dismiss()
        self.check(instance)

    def check(self, instance: Instance) -> None:
        """Check whether a generation or instance has answered its last request."""
        if instance.has_left:
            self._outbox.supervisor.append(wire.Drained(instance.generation, instance.serial))
            self.tell_settled(self._generations.by_number[instance.generation], instance.serial)

    def tell_settled(self, generation: BrokerGeneration, serial: int = 0) -> None:
        """Notify the supervisor once later brokers need not know what a stub, or all, had begun."""
        outbox, message = self._outbox, wire.Settled(generation.number, serial)
        # The outbox gets new lists from time to time, so they are looked up late.
        self._recovery.once_over(
            lambda: outbox.once_delivered.append(lambda: outbox.supervisor.append(message))
        )

    def note_call(self, serial: int, callee: BrokerGeneration) -> None:
        """Report to the supervisor which models a model calls: it needs them until it ends."""
        instance = self._instances.get(serial)
        if instance is not None:
            calls = self._generations.by_number[instance.generation].calls
            if callee.model not in calls:
                calls.add(callee.model)
                self._outbox.supervisor.append(wire.ModelCalled(instance.generation, callee.model))
