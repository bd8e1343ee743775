"""Runs tasks in the instances of a model, and answers with their findings.

An instance runs one task at a time. If an instance dies or does not answer, the reason is in the
answer; if it is the only one, the call fails. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from zmqtriton.sdk.supervisor import ControlCall, CoreParts, Feature, InstanceState, StubPlace, Verb
from zmqtriton.sdk.wire import InvalidArgument, Unavailable, ZmqTritonError, errors, numbers

#: The tasks, as the declaration names them.
PROFILE, MEMORY = "profile", "memory"
_MOST_SECONDS = 600.0
#: The instance has this time to begin, and to send; memory is looked through, too.
_GRACE_S = {PROFILE: 15.0, MEMORY: 45.0}
#: Bytes of the answer, for all instances together.
_MOST_BYTES = 8 << 20
_MOST_BYTES_OF_INSTANCE = 1 << 20
#: States of an instance whose process runs the model's code.
_STATES = frozenset({InstanceState.LOADING, InstanceState.READY, InstanceState.DRAINING})


class Inspections(Feature):
    def __init__(self, core: CoreParts) -> None:
        super().__init__(core)
        self._tasks = core.tasks
        #: Serials of the instances that look at themselves.
        self._inspected: set[int] = set()

    @property
    def verbs(self) -> Mapping[str, Verb]:
        # the log names who has looked into a model
        return {
            "profile": Verb(self._profile, changes=Verb.always),
            "memory": Verb(self._measure, changes=Verb.always),
        }

    def describe(self, counts: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return the instances with a running task; the key shows pages that they may ask."""
        return {"inspected": sorted(self._inspected)}

    async def _profile(self, call: ControlCall) -> dict[str, Any]:
        arguments = call.arguments
        ControlCall.check_names("a profile", arguments, ("model", "seconds", "instance", "request"))
        seconds, request = _seconds(arguments, 10.0), text_of(arguments, "request")
        instances = self._choose(arguments)
        values = {
            "seconds": seconds,
            "request": request,
            "most_bytes": min(_MOST_BYTES_OF_INSTANCE, _MOST_BYTES // len(instances)),
        }
        return await self._ask(PROFILE, instances, arguments["model"], values)

    async def _measure(self, call: ControlCall) -> dict[str, Any]:
        """Measure which memory of one instance grows; the instance is slower while it is traced."""
        arguments = call.arguments
        ControlCall.check_names(
            "a measurement of memory", arguments, ("model", "seconds", "instance")
        )
        values = {"seconds": _seconds(arguments, 60.0)}
        instances = self._choose(arguments)[:1]
        return await self._ask(MEMORY, instances, arguments["model"], values)

    async def _ask(
        self, task: str, instances: list[StubPlace], model: str, values: dict[str, Any]
    ) -> dict[str, Any]:
        """Run a task in instances; return their answers, or the reason of a failure."""
        serials = {one.serial for one in instances}
        self._inspected |= serials
        within_s = values["seconds"] + _GRACE_S[task]
        promises = [
            (one.name, one.pid, self._tasks.ask(one, task, values, within_s)) for one in instances
        ]
        answers = []
        for instance, pid, promise in promises:
            about = {"instance": instance, "pid": pid}
            try:
                about |= {task: await promise}
            except ZmqTritonError as error:
                about |= {"error": _describe(instance, model, error)}
            answers.append(about)
        self._inspected -= serials
        if all("error" in one for one in answers):
            raise Unavailable(str(answers[0]["error"]))
        return {"model": model, "instances": answers}

    def _choose(self, arguments: dict[str, Any]) -> list[StubPlace]:
        """Return the chosen instances. Raises InvalidArgument, or Unavailable for busy ones."""
        model, chosen = (
            ControlCall.required_model_name(arguments),
            text_of(arguments, "instance"),
        )
        self._find_model(model)
        instances = [one for one, name in running(self._server.generations) if name == model]
        if chosen:
            named = named_in(instances, chosen)
            if not named:
                names = ", ".join(one.name for one in instances) or "none"
                raise InvalidArgument(
                    f"model '{model}' has no instance '{chosen}' that runs; it has {names}"
                )
            instances = named
        if not instances:
            raise Unavailable(
                f"no process of model '{model}' runs; `zmqtriton-ctl explain` says why"
            )
        for one in instances:
            if one.serial in self._inspected:
                raise Unavailable(
                    f"'{one.name}' is being measured already: wait for the end, or pass --instance"
                )
        return instances


def running(generations: Mapping[int, Any]) -> Iterator[tuple[StubPlace, str]]:
    """Iterate over the instances whose processes run, each with the name of its model."""
    for generation in generations.values():
        for instance in generation.instances:
            if instance.pid and instance.state in _STATES:
                yield instance, generation.blueprint.name


def named_in(instances: Sequence[StubPlace], chosen: str) -> list[StubPlace]:
    """Return the instance with this name or number; [] without one."""
    named = [one for one in instances if one.name == chosen]
    if not named and chosen.isdecimal():
        named = list(instances[int(chosen) :][:1])
    return named


def _seconds(arguments: dict[str, Any], default: float) -> float:
    return numbers.number("seconds", arguments.get("seconds", default), 1e-3, _MOST_SECONDS)


def text_of(arguments: dict[str, Any], name: str) -> str:
    text = arguments.get(name, "")
    if type(text) is not str:
        raise InvalidArgument(f"{name} is no text: write it in quotes")
    return text


def _describe(instance: str, model: str, error: ZmqTritonError) -> str:
    if isinstance(error, errors.DeadlineExceeded):
        return (
            f"'{instance}' has not answered: its Python stands still, perhaps in C code that keeps "
            f"the interpreter's lock; `zmqtriton-ctl stacks {model}` shows where"
        )
    # without the frames, which have directories of the server
    return f"'{instance}': {error.text.partition(chr(10))[0]}"
