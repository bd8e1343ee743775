"""The operator's commands for a running model: print its stacks, and restart it.

Called for `zmqtriton-ctl stacks` and `restart`, in any model control mode. Does no I/O.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

from zmqtriton.supervisor import states
from zmqtriton.supervisor.actions import Signal
from zmqtriton.supervisor.control.arguments import optional_model_name, required_model_name
from zmqtriton.supervisor.control.verbs import ControlCall, Verb, Verbs, at_once
from zmqtriton.supervisor.features.feature import CoreParts, Feature
from zmqtriton.supervisor.models.generation import Generation
from zmqtriton.supervisor.models.instance import Instance
from zmqtriton.supervisor.states import InstanceState
from zmqtriton_floor.reasons import Kind, Reason

#: A signal that is ignored by processes that have not installed a handler yet.
DUMP_STACKS_SIGNAL = signal.SIGURG
_REASON = Reason.of(Kind.RESTARTED, "it was restarted by an operator")
#: In these states an instance comes back by itself.
_RECOVERING_STATES = frozenset(
    {InstanceState.STARTING, InstanceState.LOADING, InstanceState.BACKOFF}
)


class Operations(Feature):
    def __init__(self, core: CoreParts) -> None:
        self._plan = core.plan
        self._server = core.server

    @property
    def verbs(self) -> Verbs:
        return {
            "stacks": Verb(at_once(self._dump_stacks)),
            "restart": Verb(self._restart, needs_repository=True, of_operators=True),
        }

    def _dump_stacks(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        """Have the model's stubs write the Python stacks of their threads.

        Each writes them to its output, and so to the log, whatever it is doing.
        """
        rows = []
        for _, instance in self._instances(optional_model_name(arguments)):
            if instance.pid:
                self._plan.enqueue(Signal(instance.serial, int(DUMP_STACKS_SIGNAL)))
                state = instance.state.value
                rows.append({"instance": instance.name, "pid": instance.pid, "state": state})
        return rows

    def _restart(self, call: ControlCall) -> None:
        """End the serving stubs, which then come back; load the model if no stub serves or will.

        The answer is the number of ended stubs, or the load's error.
        """
        model, answer = required_model_name(call.arguments), call.answer
        instances = list(self._instances(model))
        ready = [(g, i) for g, i in instances if i.state is InstanceState.READY]
        for generation, instance in ready:
            generation.handle(instance, states.KillRequested(_REASON))
        if ready or any(instance.state in _RECOVERING_STATES for _, instance in instances):
            answer(len(ready))
        else:
            self._server.load(model, None, lambda error: answer(0 if error is None else error))

    def _instances(self, model: str) -> Iterator[tuple[Generation, Instance]]:
        for generation in list(self._server.generations.values()):
            if generation.blueprint.name == model:
                yield from ((generation, instance) for instance in list(generation.instances))
