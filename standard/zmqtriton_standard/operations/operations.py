"""Restarts of models and the stacks of their stubs, for operators. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zmqtriton.sdk.supervisor import (
    ControlCall,
    CoreParts,
    Feature,
    Generation,
    InstanceState,
    Promise,
    StubPlace,
    Verb,
    actions,
)
from zmqtriton.sdk.wire import InvalidArgument, Kind, Reason

_REASON = Reason.of(Kind.RESTARTED, "it was restarted by an operator")
#: States of an instance with a process to end, and of one that will start by itself.
_LIVING_STATES = frozenset({InstanceState.LOADING, InstanceState.READY})
_RECOVERING_STATES = frozenset({InstanceState.STARTING, InstanceState.BACKOFF})


class Operations(Feature):
    def __init__(self, core: CoreParts) -> None:
        super().__init__(core)
        #: Kept once the stacks that were asked for last were read: a process writes them once.
        self._last_stacks: Promise[None] = Promise.kept(None)

    @property
    def verbs(self) -> Mapping[str, Verb]:
        return {
            # the log names who has looked into a model
            "stacks": Verb(self._read_stacks, changes=Verb.always),
            "restart": Verb(
                self._restart,
                needs_repository=True,
                of_operators=True,
                changes=Verb.always,
            ),
        }

    async def _read_stacks(self, call: ControlCall) -> list[dict[str, Any]]:
        """Let the model's stubs write the Python stacks of their threads, and return the lines.

        A stub writes them whatever it is doing. Instances that are threads have their process's.
        """
        name = ControlCall.optional_model_name(call.arguments)
        earlier, self._last_stacks = self._last_stacks, Promise()
        over = self._last_stacks
        await earlier
        stubs = [one for _, one in self._instances(name) if one.pid]
        rows = [{"instance": i.name, "pid": i.pid, "state": i.state.value} for i in stubs]
        serials = tuple(one.serial for one in stubs)
        try:
            lines = await self._plan.ask(lambda ticket: actions.ReadStacks(ticket, serials))
        finally:
            over()
        return [
            {**row, "lines": lines.get(serial, [])}
            for row, serial in zip(rows, serials, strict=True)
        ]

    async def _restart(self, call: ControlCall) -> int:
        """End the stubs, which are then replaced; load the model if no stub serves or will.

        A running load may hang, and all other calls about the model wait for it: it is ended and
        begun again, and serving stubs are left alone. The answer is the number of ended stubs, or
        the load's error; with `wait` false a load is not waited for.
        """
        name = ControlCall.required_model_name(call.arguments)
        model = self._server.models.get(name)
        instances = list(self._instances(name))
        if only := call.arguments.get("instance", ""):
            return self._restart_one(name, only, instances)
        alive = [(g, i) for g, i in instances if i.state in _LIVING_STATES]
        is_loading = model is not None and model.cancel_load(_REASON)
        if alive and not is_loading:
            return _end(alive)
        if not is_loading and any(i.state in _RECOVERING_STATES for _, i in instances):
            return 0
        loaded = self._server.load(name, None)
        if call.arguments.get("wait", True) or loaded.is_over:
            await loaded
        return 0

    def _restart_one(
        self, model: str, name: str, instances: Sequence[tuple[Generation, StubPlace]]
    ) -> int:
        """End the process of one instance, which is then replaced; return the number ended."""
        named = [(g, i) for g, i in instances if i.name == name]
        if not named:
            names = ", ".join(sorted({i.name for _, i in instances})) or "none"
            raise InvalidArgument(f"model '{model}' has no instance '{name}'; it has {names}")
        return _end([(g, i) for g, i in named if i.state in _LIVING_STATES])

    def _instances(self, model: str) -> Iterator[tuple[Generation, StubPlace]]:
        for generation in list(self._server.generations.values()):
            if generation.blueprint.name == model:
                yield from ((generation, instance) for instance in list(generation.instances))


def _end(instances: Sequence[tuple[Generation, StubPlace]]) -> int:
    """End instances, which are then replaced; return their number."""
    for generation, instance in instances:
        generation.kill(instance, _REASON)
    return len(instances)
