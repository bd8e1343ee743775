"""Has the instances of a model profile themselves, and answers with what they have seen.

An instance is profiled once at a time. One that dies, or does not answer, has its reason in the
answer, unless it is the only one. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from zmqtriton.supervisor import (
    ControlCall,
    CoreParts,
    Feature,
    InstanceState,
    StubPlace,
    Verb,
    Verbs,
    always,
    check_names,
    find_model,
    required_model_name,
)
from zmqtriton_floor.errors import DeadlineExceeded, InvalidArgument, Unavailable, ZmqTritonError

#: The task, as the declaration names it.
TASK = "profile"
_SETTINGS = ("model", "seconds", "instance", "request")
_MOST_SECONDS = 600.0
#: The instance has this time to begin, and to send.
_GRACE_S = 15.0
#: Bytes of the answer, for all instances together.
_MOST_BYTES = 8 << 20
_MOST_BYTES_OF_INSTANCE = 1 << 20
#: States of an instance whose process runs the model's code.
_STATES = frozenset({InstanceState.LOADING, InstanceState.READY, InstanceState.DRAINING})


class Profiles(Feature):
    def __init__(self, core: CoreParts) -> None:
        super().__init__(core)
        self._tasks = core.tasks
        #: Serials of the instances that are being profiled.
        self._profiled: set[int] = set()

    @property
    def verbs(self) -> Verbs:
        # the log names who has looked into a model
        return {"profile": Verb(self._profile, changes=always)}

    def describe(self, counts: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return the instances that are being profiled; pages see by the key that they may ask."""
        return {"profiled": sorted(self._profiled)}

    async def _profile(self, call: ControlCall) -> dict[str, Any]:
        arguments = call.arguments
        check_names("a profile", arguments, _SETTINGS)
        name = required_model_name(arguments)
        seconds, chosen, request = _settings(arguments)
        find_model(self._server.models, name)
        instances = self._choose(name, chosen)
        values = {
            "seconds": seconds,
            "request": request,
            "most_bytes": min(_MOST_BYTES_OF_INSTANCE, _MOST_BYTES // len(instances)),
        }
        serials = {one.serial for one in instances}
        self._profiled |= serials
        promises = [
            (one.name, one.pid, self._tasks.ask(one, TASK, values, seconds + _GRACE_S))
            for one in instances
        ]
        profiles = []
        for instance, pid, promise in promises:
            result = await promise
            about = {"instance": instance, "pid": pid}
            if isinstance(result, ZmqTritonError):
                about |= {"error": _describe(instance, name, result)}
            else:
                about |= {"profile": result}
            profiles.append(about)
        self._profiled -= serials
        if all("error" in one for one in profiles):
            raise Unavailable(str(profiles[0]["error"]))
        return {"model": name, "instances": profiles}

    def _choose(self, model: str, chosen: str) -> list[StubPlace]:
        """Return the instances to profile. Raises InvalidArgument, or Unavailable for busy ones."""
        instances = list(self._instances(model))
        if chosen:
            named = [one for one in instances if one.name == chosen]
            if not named and chosen.isdecimal() and int(chosen) < len(instances):
                named = [instances[int(chosen)]]
            if not named:
                names = ", ".join(one.name for one in instances) or "none"
                raise InvalidArgument(
                    f"model '{model}' has no instance '{chosen}' that runs; it has {names}"
                )
            instances = named
        if not instances:
            raise Unavailable(f"no process of model '{model}' runs")
        for one in instances:
            if one.serial in self._profiled:
                raise Unavailable(f"'{one.name}' is being profiled already")
        return instances

    def _instances(self, model: str) -> Iterator[StubPlace]:
        for generation in self._server.generations.values():
            if generation.blueprint.name == model:
                yield from (i for i in generation.instances if i.pid and i.state in _STATES)


def _settings(arguments: dict[str, Any]) -> tuple[float, str, str]:
    """Return the seconds, the instance and the request. Raises InvalidArgument."""
    seconds = arguments.get("seconds", 10.0)
    if type(seconds) not in (int, float) or not 0 < seconds <= _MOST_SECONDS:
        raise InvalidArgument(f"seconds must be a number above 0, up to {_MOST_SECONDS:g}")
    chosen, request = arguments.get("instance", ""), arguments.get("request", "")
    if type(chosen) is not str or type(request) is not str:
        raise InvalidArgument("instance and request must be texts")
    return float(seconds), chosen, request


def _describe(instance: str, model: str, error: ZmqTritonError) -> str:
    if isinstance(error, DeadlineExceeded):
        return (
            f"'{instance}' has not answered: its Python stands still, perhaps in C code that keeps "
            f"the interpreter's lock; `zmqtriton-ctl stacks {model}` shows where"
        )
    return f"'{instance}': {error.text}"
