"""What an operator does to a model that runs: ask where it is, and have it begin anew.

Called for `zmqtriton-ctl stacks` and `restart`, whatever the model control mode is. Does no I/O.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from zmqtriton.supervisor import states
from zmqtriton.supervisor.actions import Signal
from zmqtriton.supervisor.models.generation import Generation
from zmqtriton.supervisor.models.instance import Instance
from zmqtriton.supervisor.models.loads.loading import LoadCallback
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.states import InstanceState

#: One that is ignored by who has not prepared for it yet.
DUMP_STACKS_SIGNAL = signal.SIGURG
_REASON = "it was restarted by an operator"
#: They come back by themselves.
_RECOVERING_STATES = frozenset(
    {InstanceState.STARTING, InstanceState.LOADING, InstanceState.BACKOFF}
)


class OperatorCommands:
    def __init__(
        self,
        plan: Plan,
        generations: Mapping[int, Generation],
        load: Callable[[str, LoadCallback], None],
    ) -> None:
        self._plan = plan
        self._generations = generations
        self._load_model = load

    def dump_stacks(self, model: str) -> list[dict[str, Any]]:
        """The stubs of the model; each writes the Python stacks of its threads to its output,
        whatever it is doing, and so into the log."""
        asked = []
        for _, instance in self._instances(model):
            if instance.pid:
                self._plan.enqueue(Signal(instance.serial, int(DUMP_STACKS_SIGNAL)))
                state = instance.state.value
                asked.append({"instance": instance.name, "pid": instance.pid, "state": state})
        return asked

    def restart(self, model: str, done: Callable[[Any], None]) -> None:
        """Ends the stubs that serve, which then come back; loads the model where none does, nor
        will. `done` gets the number of those that were ended, or the load's error."""
        found = list(self._instances(model))
        ready = [(g, i) for g, i in found if i.state is InstanceState.READY]
        for generation, instance in ready:
            generation.handle(instance, states.KillRequested(_REASON))
        if ready or any(instance.state in _RECOVERING_STATES for _, instance in found):
            done(len(ready))
        else:
            self._load_model(model, lambda error: done(0 if error is None else error))

    def _instances(self, model: str) -> Iterator[tuple[Generation, Instance]]:
        for generation in list(self._generations.values()):
            if generation.blueprint.name == model:
                yield from ((generation, instance) for instance in list(generation.instances))
