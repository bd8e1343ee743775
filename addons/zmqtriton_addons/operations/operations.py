"""The operator's commands for a running model: print its stacks, and restart it.

Called for `zmqtriton-ctl stacks` and `restart`, in any model control mode. Does no I/O.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

from zmqtriton.supervisor import (
    ControlCall,
    CoreParts,
    Feature,
    Generation,
    Instance,
    InstanceState,
    KillRequested,
    Signal,
    Verb,
    Verbs,
    always,
    at_once,
    optional_model_name,
    required_model_name,
)
from zmqtriton_floor.reasons import Kind, Reason

#: A signal that is ignored by processes that have not installed a handler yet.
DUMP_STACKS_SIGNAL = signal.SIGURG
_REASON = Reason.of(Kind.RESTARTED, "it was restarted by an operator")
#: In these states an instance has a process that can be ended, or comes back by itself.
_LIVING_STATES = frozenset({InstanceState.LOADING, InstanceState.READY})
_RECOVERING_STATES = frozenset({InstanceState.STARTING, InstanceState.BACKOFF})


class Operations(Feature):
    def __init__(self, core: CoreParts) -> None:
        self._plan = core.plan
        self._server = core.server

    @property
    def verbs(self) -> Verbs:
        return {
            "stacks": Verb(at_once(self._dump_stacks)),
            "restart": Verb(
                self._restart, needs_repository=True, of_operators=True, changes=always
            ),
        }

    def _dump_stacks(self, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        """Have the model's stubs write the Python stacks of their threads.

        Each writes them to its output, and so to the log, whatever it is doing.
        """
        rows: list[dict[str, Any]] = []
        for _, instance in self._instances(optional_model_name(arguments)):
            if instance.pid:
                if not any(row["pid"] == instance.pid for row in rows):  # they may be threads
                    self._plan.enqueue(Signal(instance.serial, int(DUMP_STACKS_SIGNAL)))
                state = instance.state.value
                rows.append({"instance": instance.name, "pid": instance.pid, "state": state})
        return rows

    def _restart(self, call: ControlCall) -> None:
        """End the stubs, which then come back; load the model if no stub serves or will.

        A load that is under way may hang, and everything else that is asked of the model waits for
        it: it is ended and begun again, and what serves meanwhile is left alone. The answer is the
        number of ended stubs, or the load's error; with `wait` false a load is not waited for.
        """
        name, answer = required_model_name(call.arguments), call.answer
        model = self._server.models.get(name)
        instances = list(self._instances(name))
        alive = [(g, i) for g, i in instances if i.state in _LIVING_STATES]
        is_loading = model is not None and model.cancel_load(_REASON)
        if alive and not is_loading:
            for generation, instance in alive:
                generation.handle(instance, KillRequested(_REASON))
            answer(len(alive))
        elif not is_loading and any(i.state in _RECOVERING_STATES for _, i in instances):
            answer(0)
        else:
            self._load(name, answer, waits=call.arguments.get("wait", True))

    def _load(self, name: str, answer: Callable[[Any], None], *, waits: bool) -> None:
        if waits:
            self._server.load(name, None, lambda error: answer(0 if error is None else error))
            return
        errors: list[Any] = []
        self._server.load(name, None, errors.append)
        answer(next(filter(None, errors), 0))

    def _instances(self, model: str) -> Iterator[tuple[Generation, Instance]]:
        for generation in list(self._server.generations.values()):
            if generation.blueprint.name == model:
                yield from ((generation, instance) for instance in list(generation.instances))
