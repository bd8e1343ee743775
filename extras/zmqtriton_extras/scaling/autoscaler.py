"""Adapts the number of a model's instances to its load, within bounds from its parameters.

Requests the broker's counters a few times a second, as long as there is such a model. More
instances need room: each is assumed to need as much memory as an existing one. After a failed start
there is no further try for a while. Does no I/O.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from zmqtriton.sdk.supervisor import (
    ControlCall,
    CoreParts,
    Feature,
    Generation,
    HelperOwner,
    ServedModel,
    Verb,
)
from zmqtriton.sdk.wire import InvalidArgument, ZmqTritonError
from zmqtriton_extras.scaling.limits import AutoscaleLimits
from zmqtriton_standard.memory.measurements import (
    HOST,
    MemoryReport,
    ModelProcesses,
    Sizes,
    budgeted_gpus,
    budgets_of,
)

#: The weight of the latest interval in the moving mean.
_LATEST_SHARE = 0.4


class Reading(NamedTuple):
    """The broker's counters at one moment."""

    at_s: float
    #: The requests that were answered, and those that are not.
    answered: int
    unanswered: int
    #: Number of unanswered requests that wait in the queue.
    waiting: int
    #: The execution time of all instances together.
    busy_s: float

    @classmethod
    def of(cls, entry: Mapping[str, Any], at_s: float) -> Reading:
        answered = entry["succeeded"] + entry["failed"]
        return cls(at_s, answered, entry["unanswered"], entry["pending"], entry["busy_s"])


class Workload:
    """Rates of a version's requests and its busy instances, smoothed over about a second."""

    def __init__(self) -> None:
        self.waiting = 0
        #: Requests per second.
        self.arrival_rate = 0.0
        #: The time that an instance takes for each request; in a batch they share it.
        self.seconds_per_request = 0.0
        #: The instances that were busy at a time.
        self.busy_instances = 0.0
        self._last: Reading | None = None
        #: The execution time since requests were last answered: theirs, in part.
        self._unanswered_busy_s = 0.0
        self._has_rates = False

    def add(self, reading: Reading) -> None:
        """Add the next reading; counters that were reset start again from zero."""
        last, self._last = self._last, reading
        self.waiting = reading.waiting
        if last is None or reading.at_s <= last.at_s:
            return
        answered, busy_s = reading.answered - last.answered, reading.busy_s - last.busy_s
        if answered < 0 or busy_s < 0:
            self._unanswered_busy_s = 0.0
            return
        elapsed_s = reading.at_s - last.at_s
        arrived = max(0, answered + reading.unanswered - last.unanswered)
        share = _LATEST_SHARE if self._has_rates else 1.0
        self._has_rates = True
        self.arrival_rate += share * (arrived / elapsed_s - self.arrival_rate)
        self.busy_instances += share * (busy_s / elapsed_s - self.busy_instances)
        self._unanswered_busy_s += busy_s
        if answered:
            # executions may take many times the interval
            per_request_s = self._unanswered_busy_s / answered
            self._unanswered_busy_s = 0.0
            weight = share if self.seconds_per_request else 1.0
            self.seconds_per_request += weight * (per_request_s - self.seconds_per_request)

    @property
    def offered_instances(self) -> float:
        """Return the number of instances that the arriving requests would keep busy."""
        return max(self.arrival_rate * self.seconds_per_request, 0.0)


INTERVAL_S = 0.25
#: Seconds before the next attempt to start more instances, after one that has failed.
RETRY_PAUSE_S = 30.0
#: The share of the available memory that new instances may take.
_MEMORY_SHARE = 0.8
#: Share of the time that instances should be busy. New ones leave some reserve, and an instance
#: only stops if the others then have more of it, so that the number does not swing.
_BUSY_SHARE = 0.8
_BUSY_SHARE_WITH_FEWER = 0.65
#: Time to execute the waiting requests after scaling up, as a multiple of the accepted queue time.
_CATCH_UP_TIMES = 10


class _Growth:
    """The memory of one more thread of a process, judged by the last ones.

    The second thread shows how much a thread loads itself, and how much is shared.
    """

    def __init__(self) -> None:
        self._count, self._sizes = 0, Sizes()
        self._of_each: Sizes | None = None

    def of_each(self, count: int, sizes: Sizes) -> Sizes | None:
        """Return the bytes of one thread from those of all running; None until there were two."""
        if 0 < self._count < count:
            more = count - self._count
            grown = (sizes - self._sizes).items()
            self._of_each = Sizes({place: size // more for place, size in grown})
        self._count, self._sizes = count, sizes
        return self._of_each


class _Asked(NamedTuple):
    """A number of instances that an operator has asked for."""

    instances: int


@dataclass
class _ScaledModel:
    """A model whose instances follow its load."""

    growth: _Growth = field(default_factory=_Growth)
    #: Target by the number of the generation, because each generation counts from zero.
    targets: dict[int, InstanceTarget] = field(default_factory=dict)
    #: The broker was asked and has not answered.
    is_asked: bool = False
    #: True while instances start or stop, or memory is measured before more are started.
    is_changing: bool = False
    retry_at_s: float = -math.inf
    #: Why it has fewer instances than it needs, or "".
    obstacle: str = ""
    last_change: str = ""


class Autoscaler(Feature):
    def __init__(self, core: CoreParts) -> None:
        super().__init__(core)
        self._budgets = budgets_of(core)
        self._processes = ModelProcesses(core.plan)
        self._scaled: dict[str, _ScaledModel] = {}
        #: The last number that was asked for, by model and group.
        self._last: dict[tuple[str, str], _Asked] = {}

    @property
    def verbs(self) -> Mapping[str, Verb]:
        return {
            "scale": Verb(
                self._answer,
                of_operators=True,
                changes=is_change,
                goes_over=lambda call: call.arguments if is_change(call.arguments) else None,
            )
        }

    @property
    def helpers(self) -> Iterable[HelperOwner]:
        return (self._processes,)

    def repeated_calls(self) -> Iterable[tuple[str, dict[str, Any]]]:
        """Return the numbers of instances that clients have set."""
        for name, model in self._server.models.items():
            if (scale := model.history.scale) is not None:
                group = {"group": scale.group} if scale.group else {}
                yield "scale", {"model": name, "count": scale.instances, **group}

    # ------------------------------------------------------------- looking

    def load_ended(self, name: str) -> None:
        """Scale a model from now on, if its configuration asks for that."""
        if name not in self._scaled and self._is_scaled(name):
            self._scaled[name] = _ScaledModel()
            if len(self._scaled) == 1:
                self._plan.call_later(INTERVAL_S, self._look)

    def _is_scaled(self, name: str) -> bool:
        model = self._server.models.get(name)
        return model is not None and limits_of(model) is not None

    def _look(self) -> None:
        for name in [name for name in self._scaled if not self._is_scaled(name)]:
            del self._scaled[name]
        if self._server.is_stopping:
            self._scaled.clear()
        for name, scaled in self._scaled.items():
            if not scaled.is_asked:
                scaled.is_asked = True
                self._plan.tell(self._look_at(name))
        if self._scaled:
            self._plan.call_later(INTERVAL_S, self._look)

    async def _look_at(self, name: str) -> None:
        report = await self._counts.request(name)
        scaled = self._scaled.get(name)
        if scaled is None:
            return
        scaled.is_asked = False
        if report["counts"] and self._is_scaled(name):
            await self._consider(self._server.models[name], scaled, report["counts"])

    # ------------------------------------------------------------- deciding

    async def _consider(
        self, model: ServedModel, scaled: _ScaledModel, entries: list[Mapping[str, Any]]
    ) -> None:
        """Compare the instances of a model with the need of its busiest version."""
        serving = model.serving_generations
        by_version = {each.version: each for each in serving}
        scaled.targets = {
            each.number: scaled.targets.get(each.number) or _target_of(each) for each in serving
        }
        instances, reason = 0, ""
        for entry in entries:
            generation = by_version.get(entry["version"])
            if generation is not None:
                target = scaled.targets[generation.number]
                chosen = target.decide(Reading.of(entry, self._plan.now_s), _count(generation))
                if chosen > instances:
                    instances, reason = chosen, target.reason
        present = max(map(_count, serving))
        if scaled.is_changing or model.is_loading or not instances:
            return
        if instances < present:
            self._scale(model, scaled, instances, reason)
        elif instances > present and self._plan.now_s >= scaled.retry_at_s:
            scaled.is_changing = True
            generations = self._server.generations.values()
            # under a budget all models share it
            counted = [g for g in generations if self._budgets or g.blueprint.name == model.name]
            memory = await self._processes.measure(counted, budgeted_gpus(self._budgets))
            self._grow(model, scaled, instances, reason, memory)

    def _grow(
        self,
        model: ServedModel,
        scaled: _ScaledModel,
        instances: int,
        reason: str,
        memory: MemoryReport,
    ) -> None:
        """Start further instances, as many as there is room for."""
        scaled.is_changing, scaled.obstacle = False, ""
        serving = model.serving_generations
        present = max(map(_count, serving), default=0)
        sizes = memory.by_model.get(model.name, Sizes())
        count = max(1, sum(map(_count, serving)))
        of_each = Sizes({place: size // count for place, size in sizes.items()})
        is_trial = False
        if any(one.template and one.template.has_threads for one in serving):
            grown = scaled.growth.of_each(count, sizes)
            is_trial, of_each = grown is None, of_each if grown is None else grown
        elif model.name in memory.of_forks:
            of_each[HOST] = memory.of_forks[model.name]
        fitting, place = self._fitting(of_each, len(serving), memory)
        if is_trial and present + fitting < instances:
            instances = present + max(1, fitting)
        elif present + fitting < instances:
            instances = present + fitting
            takes, where = of_each[place] >> 20, "" if place == HOST else f" on GPU {place}"
            why = f"each takes {takes} MiB{where}, and too little memory is left"
            self._postpone(model, scaled, why)
        if present < instances and not model.is_loading:
            self._scale(model, scaled, instances, reason)

    def _fitting(self, of_each: Sizes, versions: int, memory: MemoryReport) -> tuple[int, int]:
        """Return the number of further instances that fit, and the place with the least room."""
        room = {HOST: int(memory.available_bytes * _MEMORY_SHARE)}
        used = sum(memory.by_model.values(), Sizes())
        for place, budget in self._budgets.items():
            room[place] = min(room.get(place, budget), budget - used[place])
        return min(
            (max(0, left) // max(1, of_each[place] * versions), place)
            for place, left in room.items()
            if of_each[place] or place == HOST
        )

    def _scale(self, model: ServedModel, scaled: _ScaledModel, instances: int, reason: str) -> None:
        scaled.is_changing = True
        scaled.last_change = f"to {instances}: {reason}"
        self._plan.log("I", f"autoscaling '{model.name}' {scaled.last_change}")
        self._plan.tell(self._change(model, scaled, instances))

    async def _change(self, model: ServedModel, scaled: _ScaledModel, instances: int) -> None:
        try:
            await model.scale(instances)
        except ZmqTritonError as error:
            self._postpone(model, scaled, error.text)
        finally:
            scaled.is_changing = False

    def _postpone(self, model: ServedModel, scaled: _ScaledModel, obstacle: str) -> None:
        """Start no more instances for a while."""
        scaled.obstacle = obstacle
        scaled.retry_at_s = self._plan.now_s + RETRY_PAUSE_S
        self._plan.log("W", f"'{model.name}' needs more instances than it gets: {obstacle}")

    # ------------------------------------------------------------ the calls

    async def _answer(self, call: ControlCall) -> dict[str, Any]:
        """Scale a model, or only show it; the answer is its instances."""
        model = self._find_model(ControlCall.required_model_name(call.arguments))
        is_asked = is_change(call.arguments)
        scaled = await self._scale_as_asked(model, call.arguments) if is_asked else {}
        return self._describe(model) | scaled

    async def _scale_as_asked(
        self, model: ServedModel, arguments: dict[str, Any]
    ) -> dict[str, Any]:
        """Scale a model; return the further fields of the answer."""
        ControlCall.check_names("a scale", arguments, ("model", "count", "group"))
        count, group = arguments["count"], arguments.get("group", "")
        if type(count) is not int or type(group) is not str:
            raise InvalidArgument("'count' must be an integer, and 'group' a string")
        limits = limits_of(model)
        if limits is not None and not limits.minimum <= count <= limits.maximum:
            raise InvalidArgument(
                f"model '{model.name}' is scaled by its load, to {limits.minimum} - "
                f"{limits.maximum} instances: choose one of these, not {count}"
            )
        key, scale = (model.name, group), _Asked(count)
        self._last[key] = scale
        try:
            await model.scale(count, group)
        finally:
            later = self._last.get(key, scale)
            if later is scale:
                self._last.pop(key, None)
        return {} if later is scale else {"overtaken_by": later.instances}

    def _describe(self, model: ServedModel) -> dict[str, Any]:
        """Describe the instances of a model, and its scaling by load, if it has any."""
        document, limits = _describe_instances(model), limits_of(model)
        if limits is None:
            return document
        scaled = self._scaled.get(model.name) or _ScaledModel()
        autoscale = {
            "least": limits.minimum,
            "most": limits.maximum,
            "last_change": scaled.last_change,
            "obstacle": scaled.obstacle,
        }
        return {**document, "autoscale": autoscale}


def _target_of(generation: Generation) -> InstanceTarget:
    limits: AutoscaleLimits | None = generation.blueprint.add_on_settings.get("scaling")
    return InstanceTarget(limits or AutoscaleLimits(_count(generation), _count(generation)))


def _count(generation: Generation) -> int:
    return len(generation.instances.staying)


def is_change(arguments: dict[str, Any]) -> bool:
    """True for a call that scales a model; others show its instances."""
    return "count" in arguments


def limits_of(model: ServedModel) -> AutoscaleLimits | None:
    """Return the bounds of a model that serves and is scaled by its load."""
    bounds: list[AutoscaleLimits | None]
    generations = model.serving_generations
    bounds = [each.blueprint.add_on_settings.get("scaling") for each in generations]
    return next((limits for limits in bounds if limits is not None), None)


class InstanceTarget:
    """The target number of instances of a model, calculated from its load.

    If requests would wait longer than allowed, the target rises in one step to the number that the
    load needs. If fewer instances were enough for a while, it falls to the number needed at the
    busiest moment of that time. Between the two the target does not change, so that a steady load
    has a steady number.
    """

    def __init__(self, limits: AutoscaleLimits) -> None:
        self.limits = limits
        self.workload = Workload()
        #: Why the last number was chosen.
        self.reason = ""
        #: Times with the instances needed then. The first entry has the maximum of the time that
        #: counts, and each following one the maximum of the time after it.
        self._needs: deque[tuple[float, int]] = deque()
        self._began_s: float | None = None
        #: Time since when requests have waited while no execution time is known.
        self._stuck_since_s: float | None = None

    def decide(self, reading: Reading, instances: int) -> int:
        """Return the target number of instances, given a reading and the present number."""
        self.workload.add(reading)
        now_s = reading.at_s
        self._began_s = now_s if self._began_s is None else self._began_s
        needed = self._needed(now_s, instances)
        self._note_need(now_s, max(needed, self._least_to_keep()))
        target = needed if needed > instances else self._fewer(now_s, instances)
        allowed = min(max(target, self.limits.minimum), self.limits.maximum)
        if allowed > target >= instances or allowed < target <= instances:
            self.reason = f"its limits are {self.limits.minimum} and {self.limits.maximum}"
        return allowed

    def _fewer(self, now_s: float, instances: int) -> int:
        """Return the number of instances after unneeded ones are stopped."""
        if self._began_s is None or now_s - self._began_s < self.limits.down_after_s:
            return instances
        enough = self._needs[0][1]
        if enough < instances:
            self.reason = f"{enough} were enough for {self.limits.down_after_s:g} s"
        return min(enough, instances)

    def _needed(self, now_s: float, instances: int) -> int:
        """Return the number of instances needed now; at most `instances` if these are enough."""
        load, allowed_s = self.workload, self.limits.queue_s
        if not load.waiting:
            self._stuck_since_s = None
            return 0
        if not load.seconds_per_request:
            # nothing was answered yet, so one more is a guess
            self._stuck_since_s = now_s if self._stuck_since_s is None else self._stuck_since_s
            is_stuck = now_s - self._stuck_since_s > allowed_s
            self._stuck_since_s = now_s if is_stuck else self._stuck_since_s
            self.reason = f"{load.waiting} requests wait"
            return instances + is_stuck
        wait_s = load.waiting * load.seconds_per_request / max(1, instances)
        if wait_s <= allowed_s:
            return 0
        self.reason = f"requests wait about {1000 * wait_s:.0f} ms"
        backlog = load.waiting * load.seconds_per_request / (_CATCH_UP_TIMES * allowed_s)
        return max(instances + 1, math.ceil(load.offered_instances / _BUSY_SHARE + backlog))

    def _least_to_keep(self) -> int:
        """Return the least number of instances for the arriving requests, with some reserve."""
        busy = max(self.workload.busy_instances, self.workload.offered_instances)
        return max(1, math.ceil(busy / _BUSY_SHARE_WITH_FEWER))

    def _note_need(self, now_s: float, count: int) -> None:
        """Record the needed number of instances, to find the largest of the recent past."""
        while self._needs and self._needs[-1][1] <= count:
            self._needs.pop()
        self._needs.append((now_s, count))
        while self._needs[0][0] < now_s - self.limits.down_after_s:
            self._needs.popleft()


def _describe_instances(model: ServedModel) -> dict[str, Any]:
    """Return the numbers of instances and of ready instances of each serving version."""
    serving = {n: one.generation for n, one in sorted(model.versions.items()) if one.is_serving}
    versions = {
        str(number): {
            "instances": len(one.instances.staying),
            "ready": one.readiness.ready_count,
        }
        for number, one in serving.items()
        if one is not None
    }
    return {"model": model.name, "versions": versions}
