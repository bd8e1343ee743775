"""The operator's commands for a running model: print its stacks, and restart it.

Called for `zmqtriton-ctl stacks` and `restart`, in any model control mode. Does no I/O.
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

#: A signal that is ignored by processes that have not installed a handler yet.
DUMP_STACKS_SIGNAL = signal.SIGURG
_REASON = "it was restarted by an operator"
#: In these states an instance comes back by itself.
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
        """Have the model's stubs write the Python stacks of their threads.

        Each writes them to its output, and so to the log, whatever it is doing.
        """
        asked = []
        for _, instance in self._instances(model):
            if instance.pid:
                self._plan.enqueue(Signal(instance.serial, int(DUMP_STACKS_SIGNAL)))
                state = instance.state.value
                asked.append({"instance": instance.name, "pid": instance.pid, "state": state})
        return asked

    def restart(self, model: str, done: Callable[[Any], None]) -> None:
        """End the serving stubs, which then come back; load the model if no stub serves or will.

        `done` gets the number of ended stubs, or the load's error.
        """
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
