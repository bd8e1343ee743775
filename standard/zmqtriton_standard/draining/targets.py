"""A drain, and the things that can be drained: the server, a model, an instance. Does no I/O.

Each target knows how to keep clients away, its counts among the broker's, and the steps that may
follow. While a target drains, the server sends clients elsewhere, but still answers requests that
arrive.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

from zmqtriton.sdk.supervisor import (
    CoreParts,
    Generation,
    InstanceState,
    Plan,
    Promise,
    ServedModel,
    StubPlace,
)
from zmqtriton.sdk.wire import InvalidArgument, Kind, NotFound, Reason, numbers, wire

#: Seconds without a new request after which an idle target counts as drained.
QUIET_S = 1.0
_MAX_S = 86_400.0


class Follow(str, Enum):
    """The step that follows a drain."""

    NOTHING = "nothing"  # it stays drained until it is undrained
    UNLOAD = "unload"
    RESTART = "restart"
    STOP = "stop"


class DrainPhase(str, Enum):
    DRAINING = "draining"  # what is under way ends
    DRAINED = "drained"  # nothing is under way, or the time is over; it stays so
    ENDING = "ending"  # what follows is being done
    OVER = "over"


class DrainEvent(Enum):
    HELD = "held"  # it has drained, and nothing follows
    FOLLOWED = "followed"  # it has drained, or the time is over, and something follows
    AGAIN = "again"  # it is asked for again, perhaps with another wish
    UNDRAINED = "undrained"
    ENDED = "ended"  # what follows is done, or somebody else has ended what it is of


_P, _E = DrainPhase, DrainEvent
DRAIN_TRANSITIONS: Mapping[tuple[DrainPhase, DrainEvent], DrainPhase] = {
    (_P.DRAINING, _E.HELD): _P.DRAINED,
    (_P.DRAINING, _E.FOLLOWED): _P.ENDING,
    (_P.DRAINING, _E.AGAIN): _P.DRAINING,
    (_P.DRAINING, _E.UNDRAINED): _P.OVER,
    (_P.DRAINING, _E.ENDED): _P.OVER,
    (_P.DRAINED, _E.AGAIN): _P.DRAINING,
    (_P.DRAINED, _E.UNDRAINED): _P.OVER,
    (_P.DRAINED, _E.ENDED): _P.OVER,
    (_P.ENDING, _E.ENDED): _P.OVER,
}


class DrainWish(NamedTuple):
    follow: Follow = Follow.NOTHING
    #: Seconds for the drain; None for no limit.
    within_s: float | None = None
    quiet_s: float = QUIET_S

    @classmethod
    def parse(cls, arguments: Mapping[str, Any], allowed: tuple[Follow, ...]) -> DrainWish:
        """Read the arguments of a call. Raises InvalidArgument."""
        names = [follow.value for follow in allowed]
        follow = arguments.get("then", Follow.NOTHING.value)
        if follow not in names:
            raise InvalidArgument(f"'then' must be one of {', '.join(names)}")
        within_s = arguments.get("within_s")
        return cls(
            Follow(follow),
            None if within_s is None else numbers.number("within_s", within_s, 0, _MAX_S),
            numbers.number("quiet_s", arguments.get("quiet_s", QUIET_S), 0, _MAX_S),
        )


class Drain:
    """One drain as a state machine: its waits, and the step after it.

        event       DRAINING  DRAINED   ENDING
        held        DRAINED
        followed    ENDING
        again       DRAINING  DRAINING
        undrained   OVER      OVER
        ended       OVER      OVER      OVER

    Knows no clock and no processes.
    """

    def __init__(self, wish: DrainWish, now_s: float) -> None:
        self.wish = wish
        self.phase = DrainPhase.DRAINING
        self.began_s = now_s
        #: Number of requests in progress and open sequences; None as long as the broker has not
        #: counted them.
        self.under_way: int | None = None
        #: The time was over before everything had ended.
        self.is_late = False
        self._last_busy_s = now_s

    def handle(self, event: DrainEvent) -> None:
        self.phase = DRAIN_TRANSITIONS[self.phase, event]

    def begin_again(self, wish: DrainWish, now_s: float) -> None:
        """Begin the drain again with another wish, and from the present time."""
        self.handle(DrainEvent.AGAIN)
        self.wish, self.began_s, self.is_late = wish, now_s, False

    def observe(self, under_way: int | None, last_arrival_s: float, now_s: float) -> None:
        """Record the number of open requests, and the time of the last arrival."""
        self.under_way = under_way
        if under_way != 0:
            self._last_busy_s = now_s
        self._last_busy_s = max(self._last_busy_s, min(last_arrival_s, now_s))

    def has_drained(self, now_s: float) -> bool:
        """True if no request is in flight and none arrived recently, or the time is over."""
        within_s = self.wish.within_s
        if self.under_way == 0 and now_s - self._last_busy_s >= self.wish.quiet_s:
            return True
        self.is_late = within_s is not None and now_s - self.began_s >= within_s
        return self.is_late


class Replacement:
    def __init__(self, plan: Plan, generation: Generation, instances: Sequence[StubPlace]) -> None:
        """Let the instances leave."""
        self._plan = plan
        self._generation = generation
        self._leaving = list(instances)
        self._slots = [instance.slot for instance in instances]
        for instance in self._leaving:
            generation.remove_instance(instance)

    @property
    def have_left(self) -> bool:
        """True if no process of the old instances is left."""
        return not any(instance in self._generation.instances for instance in self._leaving)

    @property
    def is_void(self) -> bool:
        """True if the generation has ended or is ending, so that it cannot serve again."""
        return not self._generation.is_serving

    def _end_now(self) -> None:
        """Do not wait for what the old instances execute."""
        for instance in self._leaving:
            if instance.state is InstanceState.DRAINING:
                self._generation.kill(instance, _LATE)

    async def fill(self, *, is_late: bool) -> None:
        """Start others once the old ones have left. Raises why one of them does not come up."""
        if is_late:
            self._plan.call_later(GRACE_S, self._end_now)
        await self._plan.until(lambda: self.is_void or self.have_left)
        if self.is_void:
            return
        # a change of their number may have filled their places
        taken = {one.slot for one in self._generation.instances.staying}
        new = self._generation.add_instances([slot for slot in self._slots if slot not in taken])
        ready = InstanceState.READY
        await self._plan.until(
            lambda: self.is_void or _failed(new) or all(one.state is ready for one in new)
        )
        if (failed := _failed(new)) and not self.is_void:
            raise failed.load_failure()


def _failed(instances: Sequence[StubPlace]) -> StubPlace | None:
    return next((one for one in instances if one.state is InstanceState.FAILED), None)


#: An entry of the broker's counts.
Count = Mapping[str, Any]
#: Why a model is not ready that answers all requests.
_DRAINING = Reason.of(Kind.DRAINING, "draining")
_LATE = Reason.of(Kind.REPLACED_LATE, "the time for its drain was over")
#: Seconds for executions to end by themselves after the time of a drain is over. Clients that
#: never stop sending may cause a late end, and their last requests should not fail for that.
GRACE_S = 1.0


def _sum(counts: Collection[Count] | None) -> tuple[int | None, float]:
    if counts is None:
        return None, 0.0
    return sum(entry["unanswered"] + entry["sequences"] for entry in counts), max(
        (entry["last_arrival_s"] for entry in counts), default=0.0
    )


class ServerTarget:
    """The server as a target; models and instances have the same methods."""

    #: Name of the target in logs and errors.
    name = "the server"
    allowed: tuple[Follow, ...] = (Follow.NOTHING, Follow.STOP)
    #: True if the target no longer serves, for any reason; the drain's outcome is `ended_as` then.
    has_ended = False
    ended_as = "stopping"

    def __init__(self, core: CoreParts) -> None:
        self._core = core

    def avoid(self) -> None:
        """Send clients elsewhere."""
        self._core.audience.send_elsewhere()
        self._core.audience.tell_frontends(wire.ServerDraining(1))

    def accept(self) -> None:
        """Let clients use the target again."""
        self._core.audience.take_back()
        self._core.audience.tell_frontends(wire.ServerDraining(0))

    def count(self, counts: Collection[Count] | None) -> tuple[int | None, float]:
        """Return the number of open requests and the time of the last one.

        The number is None without counts of the broker.
        """
        return _sum(counts)

    def can_follow(self) -> bool:
        """True if the step may begin; False while something else has to end first."""
        return True

    def follow(self, follow: Follow, *, is_late: bool) -> Promise[None]:
        """Take the step after the drain."""
        self._core.server.stop()
        return Promise.kept(None)


class ModelTarget:
    allowed: tuple[Follow, ...] = (Follow.NOTHING, Follow.UNLOAD, Follow.RESTART)
    ended_as = "unloaded"

    def __init__(self, core: CoreParts, model: ServedModel) -> None:
        self.name = f"model '{model.name}'"
        self._plan = core.plan
        self._server = core.server
        self._model = model

    @property
    def has_ended(self) -> bool:
        return not any(version.is_serving for version in self._model.versions.values())

    def avoid(self) -> None:
        self._change(is_draining=True)

    def accept(self) -> None:
        self._change(is_draining=False)

    def _change(self, *, is_draining: bool) -> None:
        others = [reason for reason in self._model.avoidances if reason != _DRAINING]
        self._model.avoidances = [*others, _DRAINING] if is_draining else others
        for version in self._model.versions.values():
            self._model.publish(version)

    def count(self, counts: Collection[Count] | None) -> tuple[int | None, float]:
        if counts is None:
            return _sum(None)
        return _sum([entry for entry in counts if entry["model"] == self._model.name])

    def can_follow(self) -> bool:
        return not self._model.is_loading

    def follow(self, follow: Follow, *, is_late: bool) -> Promise[None]:
        step = self._unload if follow is Follow.UNLOAD else self._restart
        return self._plan.tell(step(is_late=is_late))

    async def _unload(self, *, is_late: bool) -> None:
        ending = [one.generation for one in self._model.versions.values() if one.generation]
        unloaded = self._server.unload(self._model.name, False)
        if is_late:
            for generation in ending:
                self._plan.call_later(GRACE_S, partial(generation.abort, _LATE))
        await unloaded

    async def _restart(self, *, is_late: bool) -> None:
        serving = self._model.serving_generations
        replacements = [
            Replacement(self._plan, one, list(one.instances)) for one in serving if one.instances
        ]
        results = [self._plan.tell(each.fill(is_late=is_late)) for each in replacements]
        # each version comes back by itself, also if another one does not
        await self._plan.until(lambda: all(each.is_over for each in results))
        for result in results:
            await result


class InstanceTarget:
    allowed: tuple[Follow, ...] = (Follow.NOTHING, Follow.RESTART)
    ended_as = "replaced"

    def __init__(self, plan: Plan, model: ServedModel, name: str) -> None:
        """Find the instance. Raises NotFound."""
        matches = [
            (version, instance)
            for version in model.versions.values()
            if version.is_serving and version.generation is not None
            for instance in version.generation.instances
            if instance.name == name and instance.state is InstanceState.READY
        ]
        if not matches:
            raise NotFound(
                f"model '{model.name}' has no instance '{name}' that is ready; `zmqtriton-ctl "
                "status` lists them"
            )
        self._plan = plan
        self._model = model
        self._version, self._instance = matches[0]
        self.name = f"instance '{name}'"
        self._replacement: Replacement | None = None

    def check(self, follow: Follow) -> None:
        """Raise InvalidArgument if sequences would be lost, or requests wait for `undrain`."""
        config = self._generation.final_config
        if config is not None and config.has_sequences:
            raise InvalidArgument(
                f"{self.name} may have sequences, which end with it: drain the model"
            )
        own = 1 if self._replacement is None else 0
        if follow is Follow.NOTHING and self._generation.readiness.ready_count <= own:
            raise InvalidArgument(
                f"{self.name} is the last one that is ready: drain the model, or restart it"
            )

    @property
    def _generation(self) -> Generation:
        generation = self._version.generation
        assert generation is not None
        return generation

    @property
    def has_ended(self) -> bool:
        return self._replacement is not None and self._replacement.is_void

    def avoid(self) -> None:
        self._replacement = Replacement(self._plan, self._generation, [self._instance])
        self._model.publish(self._version)

    def count(self, counts: Collection[Count] | None) -> tuple[int | None, float]:
        assert self._replacement is not None
        return int(not self._replacement.have_left), 0.0

    def can_follow(self) -> bool:
        return True

    def follow(self, follow: Follow, *, is_late: bool) -> Promise[None]:
        assert self._replacement is not None
        return self._plan.tell(self._replacement.fill(is_late=is_late))


Target = ServerTarget | ModelTarget | InstanceTarget
