"""What ends once it has answered what it has: a generation, or single stubs of one that goes on.

Tells the supervisor of both ends, and which models ask which, so that it can end callers first; and
when the server stops, that no client has a sequence to go on with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zmqtriton.broker.scheduling.generation import Generation
from zmqtriton.broker.scheduling.instances import Instance
from zmqtriton_floor import wire

if TYPE_CHECKING:
    from zmqtriton.broker.core import Core


class Retirement:
    def __init__(self, core: Core) -> None:
        self._core = core
        #: The supervisor waits until no client has an open sequence.
        self._is_last_call = False

    def retire(self, message: wire.Retire) -> None:
        generation, serial = self._core.generations.get(message.generation), message.serial
        if not message.generation:
            self._is_last_call = True
            self.look()
        elif generation is None or serial not in (0, *generation.instances):
            self._core.outbox.supervisor.append(wire.Drained(*message))
        elif serial:
            self.dismiss(generation.instances[serial])
        else:
            self.close(generation)
            self._core.answers.check_drained(generation)

    def close(self, generation: Generation) -> None:
        """It takes no more requests. Those that it has replaced need not wait for what sequences
        they have: nobody can go on with these, unless it was replaced too."""
        generation.is_retired = True
        self._core.caching.forget(generation)
        for earlier in self._core.generations.replaced(generation):
            self._core.answers.check_drained(earlier)

    def look(self, now_ns: int = 0) -> None:
        """To be called after everything that happens."""
        if not self._is_last_call:
            return
        if not any(g.sequences and g.sequences.are_awaited for g in self._core.generations):
            self._is_last_call = False
            self._core.outbox.supervisor.append(wire.Drained(0))

    def dismiss(self, instance: Instance) -> None:
        """It is given nothing new."""
        instance.dismiss()
        self.check(instance)

    def check(self, instance: Instance) -> None:
        """It may have answered the last that it had."""
        if instance.has_left:
            told = wire.Drained(instance.generation, instance.serial)
            self._core.outbox.supervisor.append(told)

    def note_call(self, serial: int, callee: Generation) -> None:
        """Whoever a model asks is needed for as long as that one."""
        instance = self._core.instances.get(serial)
        if instance is not None:
            calls = self._core.generations[instance.generation].calls
            if callee.model not in calls:
                calls.add(callee.model)
                called = wire.ModelCalled(instance.generation, callee.model)
                self._core.outbox.supervisor.append(called)
