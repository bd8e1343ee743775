"""Drains: clients leave a model, an instance or the server before it is stopped or changed.

Only this module keeps the drains, so the death of a broker does not change them. The core sends
them to frontends that start later. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from zmqtriton.sdk.supervisor import (
    ControlCall,
    CoreParts,
    Feature,
    Promise,
    Scope,
    Verb,
)
from zmqtriton.sdk.wire import InvalidArgument, Unavailable, ZmqTritonError, wire
from zmqtriton_standard.draining import DrainingOptions
from zmqtriton_standard.draining.targets import (
    Drain,
    DrainEvent,
    DrainPhase,
    DrainWish,
    Follow,
    InstanceTarget,
    ModelTarget,
    ServerTarget,
    Target,
)

_KEY_SETTINGS = frozenset({"model", "instance"})
_SETTINGS = _KEY_SETTINGS | {"then", "within_s", "quiet_s", "wait"}
#: Seconds between two questions to the broker about the requests in progress.
POLL_S = 0.2

#: The model and the instance; "" for all of them.
Key = tuple[str, str]
_SERVER: Key = ("", "")


@dataclass
class _Drained:
    """A target with its drain, and the calls that wait for it."""

    key: Key
    target: Target
    drain: Drain
    #: The owner of its story.
    scope: Scope
    #: True once the step after the drain can be taken.
    has_drained: bool = False
    #: The answer to those who wait.
    result: Promise[Any] = field(default_factory=Promise)
    #: Result of the drain in a word, once it is over.
    outcome: str = ""

    def describe(self, now_s: float) -> dict[str, Any]:
        model, instance = self.key
        drain = self.drain
        status: dict[str, Any] = {"model": model} if model else {}
        if instance:
            status["instance"] = instance
        status |= {
            "state": self.outcome or drain.phase.value,
            "then": drain.wish.follow.value,
            "under_way": drain.under_way,
            "seconds": round(now_s - drain.began_s, 3),
        }
        return {**status, "is_late": True} if drain.is_late else status

    def answer(self) -> Promise[Any]:
        """Return the promise to answer now; later calls wait for a new one."""
        answered, self.result = self.result, Promise()
        return answered


class Draining(Feature):
    def __init__(self, core: CoreParts) -> None:
        super().__init__(core)
        self._core = core
        #: Seconds between a request to stop and the stop: the server serves, but is not ready.
        self._exit_drain_s = core.policy.options_of(DrainingOptions).exit_drain_secs
        self._drained: dict[Key, _Drained] = {}
        #: The outcomes of those that are over.
        self._past: dict[Key, dict[str, Any]] = {}
        self._is_polling = False
        #: A drain has begun since the last look.
        self._begun = Promise[None]()
        #: The server drains because it was asked to stop; this drain cannot be undone.
        self._is_exiting = False

    def news(self) -> Iterable[wire.ServerDraining]:
        return [wire.ServerDraining(1)] if _SERVER in self._drained else []

    def describe(self, counts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        return {"drains": [one.describe(self._plan.now_s) for one in self._drained.values()]}

    @property
    def phase(self) -> str:
        return "draining" if _SERVER in self._drained else ""

    # ---------------------------------------------------------------- the calls

    @property
    def verbs(self) -> Mapping[str, Verb]:
        return {
            "drain": Verb(
                self._begin,
                of_operators=True,
                changes=Verb.always,
                goes_over=lambda call: _to_repeat(call.arguments),
            ),
            "undrain": Verb(
                self._undrain,
                of_operators=True,
                changes=Verb.always,
                goes_over=Verb.the_same,
            ),
            "drain.state": Verb(lambda call: self._state(_key(call.arguments))),
        }

    def repeated_calls(self) -> Iterable[tuple[str, dict[str, Any]]]:
        """Return the drains of models and of the server that nothing follows."""
        for (model, instance), drained in self._drained.items():
            if not instance and drained.drain.wish.follow is Follow.NOTHING:
                yield "drain", {**({"model": model} if model else {}), "wait": False}

    def defer_stop(self) -> bool:
        """Drain before the server stops, if a time is configured; return whether one is."""
        seconds = self._exit_drain_s
        if seconds:
            self._is_exiting = True
            self._plan.log("I", f"Draining for {seconds:g} s before the server stops.")
            self._set(_SERVER, DrainWish(Follow.STOP, seconds, seconds))
        return bool(seconds)

    def _begin(self, call: ControlCall) -> Any:
        """Begin a drain; the answer comes when it has drained, unless the call asks for none."""
        arguments, key = call.arguments, _key(call.arguments)
        ControlCall.check_names("a drain", arguments, _SETTINGS)
        current = self._drained.get(key)
        target = self._target(key) if current is None else current.target
        wish = DrainWish.parse(arguments, target.allowed)
        does_wait = arguments.get("wait", True)
        if type(does_wait) is not bool:
            raise InvalidArgument("'wait' must be a boolean")
        if isinstance(target, InstanceTarget):
            target.check(wish.follow)
        drained = self._set(key, wish, target)
        return drained.result if does_wait else drained.describe(self._plan.now_s)

    def _target(self, key: Key) -> Target:
        model, instance = key
        if not model:
            return ServerTarget(self._core)
        target_model = self._find_model(model)
        target: InstanceTarget | ModelTarget = ModelTarget(self._core, target_model)
        if instance:
            target = InstanceTarget(self._plan, target_model, instance)
        if target.has_ended:
            raise Unavailable(f"model '{model}' is not loaded, so you need not drain it")
        return target

    def _set(self, key: Key, wish: DrainWish, target: Target | None = None) -> _Drained:
        drained = self._drained.get(key)
        if drained is None:
            target = target or self._target(key)
            drain, scope = Drain(wish, self._plan.now_s), self._plan.scope()
            drained = self._drained[key] = _Drained(key, target, drain, scope)
            self._plan.log("I", f"draining {target.name}")
            target.avoid()
            scope.tell(self._tell(drained))
        elif drained.drain.phase is DrainPhase.ENDING:
            raise Unavailable(_under_way(drained))
        else:
            drained.drain.begin_again(wish, self._plan.now_s)
            drained.has_drained = False
        self._poll()
        return drained

    def _undrain(self, call: ControlCall) -> Any:
        key = _key(call.arguments)
        ControlCall.check_names("an undrain", call.arguments, _KEY_SETTINGS)
        drained = self._drained.get(key)
        if drained is None:
            if key != _SERVER:
                self._find_model(key[0])
            return _SERVING
        if drained.drain.phase is DrainPhase.ENDING or (key == _SERVER and self._is_exiting):
            raise Unavailable(_under_way(drained))
        del self._drained[key]
        drained.scope.cancel()
        drained.drain.handle(DrainEvent.UNDRAINED)
        self._past[key] = _SERVING
        drained.answer().fail(Unavailable(f"{drained.target.name} was undrained"))
        self._plan.log("I", f"undrained {drained.target.name}")
        if not isinstance(drained.target, InstanceTarget):
            drained.target.accept()
            return _SERVING
        # its place is filled again
        drained.drain = Drain(DrainWish(Follow.RESTART, None, 0.0), self._plan.now_s)
        self._drained[key] = drained
        restarted = drained.result
        self._plan.tell(self._follow(drained))
        return restarted

    def _state(self, key: Key) -> dict[str, Any]:
        drained = self._drained.get(key)
        if drained is not None:
            return drained.describe(self._plan.now_s)
        if key != _SERVER:
            self._find_model(key[0])
        return self._past.get(key, _SERVING)

    # --------------------------------------------------------------- what happens

    async def _tell(self, drained: _Drained) -> None:
        """Wait until it has drained, and take the step that follows; it may end before."""
        drain, target = drained.drain, drained.target
        while True:
            await self._plan.until(
                lambda: (
                    target.has_ended or (drained.has_drained and drain.phase is DrainPhase.DRAINING)
                )
            )
            if target.has_ended:
                self._end(drained, None)
                return
            how = " when its time was over" if drain.is_late else ""
            self._plan.log("I", f"drained {target.name}{how}")
            if drain.wish.follow is not Follow.NOTHING:
                await self._follow(drained)
                return
            drain.handle(DrainEvent.HELD)
            drained.answer()(drained.describe(self._plan.now_s))

    def _poll(self) -> None:
        if self._is_polling:
            self._begun()
        else:
            self._plan.tell(self._watch())

    async def _watch(self) -> None:
        """Request the number of open requests again and again, as long as something drains."""
        self._is_polling = True
        while any(one.drain.phase is DrainPhase.DRAINING for one in self._drained.values()):
            self._begun = Promise()
            self._observe(await self._counts.request())
            await self._plan.within(POLL_S, self._begun)
        self._is_polling = False

    def _observe(self, report: dict[str, Any]) -> None:
        now_s = self._plan.now_s
        for drained in list(self._drained.values()):
            drain = drained.drain
            if drain.phase is DrainPhase.DRAINING:
                drain.observe(*drained.target.count(report["counts"]), now_s)
                drained.has_drained = drain.has_drained(now_s) and drained.target.can_follow()

    async def _follow(self, drained: _Drained) -> None:
        drain = drained.drain
        drain.handle(DrainEvent.FOLLOWED)
        try:
            await drained.target.follow(drain.wish.follow, is_late=drain.is_late)
        except ZmqTritonError as error:
            self._end(drained, error)
        else:
            self._end(drained, None)

    def _end(self, drained: _Drained, error: ZmqTritonError | None) -> None:
        follow = drained.drain.wish.follow
        drained.drain.handle(DrainEvent.ENDED)
        if drained.key != _SERVER:
            del self._drained[drained.key]
            # whatever becomes of the model: what is loaded next is ready
            if not isinstance(drained.target, InstanceTarget):
                drained.target.accept()
        target = drained.target
        drained.outcome = target.ended_as if target.has_ended else _OUTCOMES[follow]
        status = drained.describe(self._plan.now_s)
        self._past[drained.key] = status
        if error is None:
            drained.answer()(status)
        else:
            status |= {"state": "failed", "error": error.text}
            drained.answer().fail(error)


_SERVING = {"state": "serving"}
_OUTCOMES = {
    Follow.NOTHING: "serving",
    Follow.UNLOAD: "unloaded",
    Follow.RESTART: "restarted",
    Follow.STOP: "stopping",
}


def _under_way(drained: _Drained) -> str:
    verb = {"unload": "unloaded", "restart": "restarted", "stop": "stopped"}
    what = verb.get(drained.drain.wish.follow.value, "drained")
    return f"{drained.target.name} is being {what}"


def _to_repeat(arguments: dict[str, Any]) -> dict[str, Any] | None:
    """Return the drain for a server that takes over; None if its step concerns this server."""
    follow = arguments.get("then", Follow.NOTHING.value)
    is_over = arguments.get("instance") or follow in (Follow.RESTART.value, Follow.STOP.value)
    return None if is_over else {**arguments, "wait": False}


def _key(arguments: dict[str, Any]) -> Key:
    model, instance = (
        ControlCall.optional_model_name(arguments),
        arguments.get("instance", ""),
    )
    if type(instance) is not str:
        raise InvalidArgument("the name of an instance must be a text")
    if instance and not model:
        raise InvalidArgument("the model of the instance is missing: name it")
    return model, instance
