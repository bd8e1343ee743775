"""Debuggers of instances: an instance waits at a `breakpoint()`, and an operator gets a session.

The session itself is between the operator's program and the instance. During a session the time
limits of that instance are paused; a model without an operator continues after a while. Does no
I/O.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from zmqtriton.sdk.supervisor import (
    ControlCall,
    CoreParts,
    Feature,
    Promise,
    StubPlace,
    Verb,
)
from zmqtriton.sdk.wire import InvalidArgument, Unavailable, numbers, wire
from zmqtriton_extras.inspection.feature import named_in, running, text_of

#: The tasks, as the declaration names them.
DEBUG, DEBUG_HERE, DEBUG_AGAIN = "debug", "debug_here", "debug_again"
#: Seconds that a model waits at a `breakpoint()`, and for an operator's next command.
_WAIT_S, _SILENT_S = 600.0, 600.0
_MOST_SILENT_S = 86_400.0


class _Stop(NamedTuple):
    """An instance that waits for an operator, or has one."""

    instance: StubPlace
    model: str
    since_s: float
    #: The line at which the model stands; "" until it has stopped.
    place: str
    #: Promise of a session's code; None if no code is awaited.
    code: Promise[Any] | None


class Debugging(Feature):
    def __init__(self, core: CoreParts) -> None:
        super().__init__(core)
        self._tasks = core.tasks
        #: Instances that stand, by their serials.
        self._stops: dict[int, _Stop] = {}
        #: The broker that knows which limits rest, by its serial.
        self._broker = 0

    @property
    def verbs(self) -> Mapping[str, Verb]:
        return {
            "debug": Verb(self._debug, changes=Verb.always),
            "breakpoint": Verb(self._await_operator, of_models=True),
            "debug.at": Verb(self._move, of_models=True),
        }

    def start(self) -> None:
        self._plan.tell(self._tell_brokers())

    async def _tell_brokers(self) -> None:
        """Tell each broker that replaces another which limits rest."""
        while True:
            await self._plan.until(lambda: self._broker != self._introductions.broker_serial)
            self._broker = self._introductions.broker_serial
            for serial in self._stops:
                self._audience.tell_broker(wire.LimitsRest(serial, 1))

    def describe(self, counts: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return the instances that are stopped, with their places."""
        self._forget_the_dead()
        return {
            "debugged": [
                {
                    "model": stop.model,
                    "instance": stop.instance.name,
                    "place": stop.place,
                    "for_s": round(self._plan.now_s - stop.since_s, 1),
                    "has_operator": stop.code is None,
                }
                for stop in self._stops.values()
            ]
        }

    @property
    def phase(self) -> str:
        self._forget_the_dead()
        return ", ".join(
            f"{stop.instance.name} stands at {_short(stop.place)}"
            for stop in self._stops.values()
            if stop.place
        )

    async def _await_operator(self, call: ControlCall) -> Any:
        """Let a model wait at a breakpoint; return the code of a session, or None to continue."""
        instance, model = self._instance_of(call.caller)
        place, code = str(call.arguments.get("place", "")), Promise[Any]()
        if instance.serial in self._stops:
            return self._tasks.code(DEBUG_AGAIN, {})
        self._begin(instance, model, place, code)
        self._plan.log(
            "W",
            f"'{instance.name}' waits at a breakpoint() ({_short(place)}) for `zmqtriton-ctl debug "
            f"{model}`, for {_WAIT_S:g} s at most",
        )
        self._plan.call_later(_WAIT_S, lambda: self._give_up(instance.serial, code))
        return await code

    def _give_up(self, serial: int, code: Promise[Any]) -> None:
        stop = self._stops.get(serial)
        if stop is not None and stop.code is code:
            self._end(serial)
            code(None)

    async def _debug(self, call: ControlCall) -> dict[str, Any]:
        arguments = call.arguments
        ControlCall.check_names("a debugger", arguments, ("model", "instance", "seconds"))
        model, chosen = (
            ControlCall.required_model_name(arguments),
            text_of(arguments, "instance"),
        )
        seconds = numbers.number(
            "seconds", arguments.get("seconds", _SILENT_S), 1e-3, _MOST_SILENT_S
        )
        self._find_model(model)
        instance = self._choose(model, chosen)
        address, token = (secrets.token_hex(16) for _ in range(2))
        # who may connect to the control socket
        users = [0, os.geteuid()]
        values = {"address": address, "token": token, "seconds": seconds, "users": users}
        stop = self._stops.get(instance.serial)
        if stop is not None and stop.code is not None:
            self._stops[instance.serial] = stop._replace(code=None)
            stop.code(self._tasks.code(DEBUG_HERE, values))
        else:
            self._begin(instance, model, "", None)
            ended = self._tasks.ask(instance, DEBUG, values, _MOST_SILENT_S)
            ended.at_end(lambda: self._end(instance.serial))
        return {
            "instance": instance.name,
            "pid": instance.pid,
            "place": stop.place if stop else "",
            "address": address,
            "token": token,
        }

    def _choose(self, model: str, chosen: str) -> StubPlace:
        """Return an instance, preferably one that waits at a breakpoint."""
        self._forget_the_dead()
        instances = [one for one, name in running(self._server.generations) if name == model]
        if not instances:
            raise Unavailable(f"no process of model '{model}' runs; load it first")
        named = named_in(instances, chosen) if chosen else instances
        if not named:
            names = ", ".join(one.name for one in instances)
            raise InvalidArgument(f"model '{model}' has no instance '{chosen}'; it has {names}")
        stops = self._stops
        waiting = [one for one in named if one.serial in stops and stops[one.serial].code]
        free = waiting or [one for one in named if one.serial not in stops]
        if not free:
            raise Unavailable(
                f"'{named[0].name}' is being debugged already: end the other session, or pass "
                "--instance"
            )
        return free[0]

    def _move(self, call: ControlCall) -> None:
        """Record the line of an instance that has stopped, or the end of its session."""
        place, stop = str(call.arguments.get("place", "")), self._stops.get(call.caller)
        if call.arguments.get("is_over"):
            self._end(call.caller)
        elif stop is not None:
            self._stops[call.caller] = stop._replace(place=place)

    def _begin(
        self, instance: StubPlace, model: str, place: str, code: Promise[Any] | None
    ) -> None:
        self._stops[instance.serial] = _Stop(instance, model, self._plan.now_s, place, code)
        self._rest(instance, is_on=True)

    def _end(self, serial: int) -> None:
        stop = self._stops.pop(serial, None)
        if stop is not None and stop.instance.serial == serial:
            self._rest(stop.instance, is_on=False)

    def _rest(self, instance: StubPlace, *, is_on: bool) -> None:
        """Pause the time limits of an instance, or let them hold again."""
        self._audience.tell_broker(wire.LimitsRest(instance.serial, int(is_on)))
        instance.rest(is_on=is_on)

    def _forget_the_dead(self) -> None:
        living = {one.serial for one, _ in running(self._server.generations)}
        for serial in [one for one in self._stops if one not in living]:
            self._stops.pop(serial)

    def _instance_of(self, serial: int) -> tuple[StubPlace, str]:
        for instance, model in running(self._server.generations):
            if instance.serial == serial:
                return instance, model
        raise Unavailable("only instances of models stop at breakpoints")


def _short(place: str) -> str:
    """Return a place without the directories of its file."""
    return os.path.basename(place)
