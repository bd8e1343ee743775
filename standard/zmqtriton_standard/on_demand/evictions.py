"""Evicts models that were loaded on demand, or chooses models that should sleep.

A model is evicted if it was idle for too long. If memory of the machine or of a GPU has a budget,
the models that were unused for longest make room until another one fits: models that can sleep are
put to sleep; if that frees too little, others are evicted. Keeps a history with reasons. The loader
calls this module, keeps its data fresh, and puts models to sleep. Does no I/O.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from zmqtriton.sdk.supervisor import CoreParts, Plan, ServedModel, reaches
from zmqtriton.sdk.wire import Kind, Reason, Unavailable, ZmqTritonError
from zmqtriton_standard.memory.measurements import HOST, Sizes, budgeted_gpus, budgets_of
from zmqtriton_standard.on_demand import OnDemandOptions

#: After a load on demand, the requests that caused it get this long to arrive.
GRACE_S = 5.0
TOO_MUCH = "models took more than their memory budget"
#: The model parameter that limits its idle time, in seconds; 0 is no limit.
IDLE_PARAMETER = "unload_idle_after_seconds"
#: Seconds before a model that was busy is asked again to sleep.
_PAUSE_S = 5.0


class ModelUsage:
    """The use of models, and the order of their eviction that follows from it.

    The loader passes on the broker's counts, and unloads the models that are named here. Only
    models that were loaded on demand are named, and none that is in use or about to be. Does no
    I/O.
    """

    def __init__(self, plan: Plan, models: Mapping[str, ServedModel], idle_after_s: float) -> None:
        self._plan = plan
        self._models = models
        self._idle_after_s = idle_after_s
        self._loaded_s: dict[str, float] = {}
        self._used_s: dict[str, float] = {}
        self._busy: set[str] = set()
        #: The last question was answered by the broker, so `_busy` is complete.
        self._is_known = False
        self._limits: dict[int, float] = {}

    # ------------------------------------------------------------ what is told

    def record_load(self, name: str) -> None:
        """Record a load, now, before any request."""
        self._loaded_s[name] = self._plan.now_s

    def record_counts(self, counts: Iterable[Mapping[str, Any]] | None) -> None:
        """Record the broker's counts; None if it did not answer, so that any model may be busy."""
        self._is_known = counts is not None
        self._busy.clear()
        for entry in counts or ():
            name, last_s = entry["model"], entry["last_arrival_s"]
            if entry["unanswered"] or entry["sequences"]:
                self._busy.add(name)
                last_s = self._plan.now_s
            self._used_s[name] = max(last_s, self._used_s.get(name, -math.inf))

    # ----------------------------------------------------------- what follows

    def last_used_s(self, name: str) -> float:
        """Return the time of the model's last request or load, the later one."""
        return max(self._used_s.get(name, -math.inf), self._loaded_s.get(name, -math.inf))

    def is_busy(self, name: str) -> bool:
        """Return whether the model had a request or a sequence at the last count."""
        return name in self._busy

    def overdue_models(self) -> list[str]:
        """Return the models that were idle for as long as their limit."""
        return [
            name
            for name in self._on_demand_models()
            if self._plan.now_s - self.last_used_s(name) >= self.idle_limit_s(name)
            and self.eviction_group(name) == [name]
        ]

    def eviction_candidates(self, kept: Collection[str]) -> list[list[str]]:
        """Return evictable models, least recently used first, each with those to evict before."""
        groups = [self.eviction_group(name) for name in self._on_demand_models()]
        return sorted(
            [
                group
                for group in groups
                if group is not None
                and not set(group) & set(kept)
                and not any(map(self._is_in_grace, group))
            ],
            key=lambda group: max(map(self.last_used_s, group)),
        )

    def eviction_group(self, name: str) -> list[str] | None:
        """Return the model after the ensembles that contain it; None if one of them must stay."""
        names = [name]
        for each in names:
            names += [
                n
                for n, m in self._models.items()
                if each in m.dependencies.served_members and n not in names
            ]
        return names[::-1] if all(map(self._can_be_evicted, names)) else None

    def idle_limit_s(self, name: str) -> float:
        """Return the seconds that a model may be idle: the least of its versions' limits."""
        return min(map(self._limit_s, self._models[name].serving_configs), default=math.inf)

    def shortest_idle_limit_s(self) -> float:
        return min(map(self.idle_limit_s, self._on_demand_models()), default=math.inf)

    def _limit_s(self, config: str) -> float:
        key = hash(config)
        if key not in self._limits:
            if len(self._limits) > len(self._models) + 64:
                self._limits.clear()
            self._limits[key] = _own_limit_s(config, self._idle_after_s) or math.inf
        return self._limits[key]

    def _on_demand_models(self) -> list[str]:
        return [n for n, m in self._models.items() if m.is_on_demand and m.serving_configs]

    def _can_be_evicted(self, name: str) -> bool:
        model = self._models[name]
        if not self._is_known or name in self._busy or model.is_loading:
            return False
        if not (model.is_on_demand and model.serving_configs):
            return False
        return not any(reaches(caller, name, self._callees_of) for caller in self._busy)

    def _is_in_grace(self, name: str) -> bool:
        loaded_s = self._loaded_s.get(name, -math.inf)
        is_used = self._used_s.get(name, -math.inf) >= loaded_s
        return not is_used and self._plan.now_s - loaded_s < GRACE_S

    def _callees_of(self, name: str) -> Collection[str]:
        model = self._models.get(name)
        return model.dependencies.callees if model is not None else ()


def _own_limit_s(config: str, otherwise_s: float) -> float:
    parameters = json.loads(config).get("parameters", {}) if IDLE_PARAMETER in config else {}
    try:
        return max(0.0, float(parameters[IDLE_PARAMETER]["string_value"]))
    except (KeyError, TypeError, ValueError):
        return otherwise_s


IDLE, MEMORY, SLEEPS = "idle", "memory", "sleeps"
_COUNTED = ("loads", "failures", IDLE, MEMORY, SLEEPS)


class _ModelHistory:
    """The last event and the counts of one model."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        #: Last event in words, and its time.
        self.event, self.at_s = "", 0.0


class Room(NamedTuple):
    """The models that make room: by sleep, or by an unload that has begun."""

    sleepers: Collection[str] = ()
    leaving: Collection[str] = ()


class Evictor:
    def __init__(self, core: CoreParts) -> None:
        self._plan = core.plan
        self._models = core.server.models
        self._budgets = budgets_of(core)
        self.usage = ModelUsage(
            core.plan, self._models, core.policy.options_of(OnDemandOptions).unload_idle_after
        )
        self._asleep_s: dict[str, float] = {}
        #: Models with instances that may be asleep.
        self._sleepers: set[str] = set()
        #: When one that did not sleep may be asked again: that a model has no `sleep`, or fails in
        #: it, is known when it was asked, and holds until it is loaded again.
        self._not_before_s: dict[str, float] = {}
        #: The memory of models that have processes, and what others took when they last had some.
        self._sizes_now: dict[str, Sizes] = {}
        self._sizes: dict[str, Sizes] = {}
        #: The estimated memory of models that are being loaded, or have begun to wake up.
        self._reserved: dict[str, Sizes] = {}
        #: When the latter began.
        self._waking_s: dict[str, float] = {}
        self._history: dict[str, _ModelHistory] = {}

    @property
    def has_budget(self) -> bool:
        return bool(self._budgets)

    @property
    def gpus(self) -> list[int]:
        """Return the numbers of the GPUs that have a budget."""
        return budgeted_gpus(self._budgets)

    @property
    def has_candidates(self) -> bool:
        """True if some model may have to be evicted."""
        return self.usage.shortest_idle_limit_s() < float("inf") or (
            self.has_budget
            and any(m.is_on_demand and m.serving_configs for m in self._models.values())
        )

    # --------------------------------------------------------- what is told

    def reserve(self, name: str) -> None:
        """Reserve memory for a model that is being loaded."""
        self._waking_s.pop(name, None)
        self._reserved[name] = self._estimate(name)[0]

    def slept(self, name: str, since_s: float) -> None:
        """Record the model as asleep."""
        self._forget_wake(name)
        self._asleep_s[name] = since_s
        self._sleepers.add(name)

    def wake(self, name: str) -> None:
        """Reserve the memory of a model that wakes up, until it sleeps again or is idle."""
        self._asleep_s.pop(name, None)
        self._waking_s[name] = self._plan.now_s
        self._reserved[name] = self._sizes.get(name, Sizes())

    def load_ended(self, name: str, error: ZmqTritonError | None) -> None:
        """Record the end of a model's load, and its error if it has failed."""
        self._reserved.pop(name, None)
        if error is not None:
            self._note(name, "failures", f"load failed: {error.text.strip()}")
            return
        self._note(name, "loads", "loaded for a request")
        for each in self._with_needs(name):
            self.usage.record_load(each)

    def sleep_ended(self, name: str, why: str, error: ZmqTritonError | None) -> None:
        """Record the end of a sleep call: the model sleeps, or has refused with an error."""
        if error is None:
            self._note(name, SLEEPS, f"put to sleep {why}")
        else:
            is_busy = error.number == Unavailable.number
            self._not_before_s[name] = self._plan.now_s + (_PAUSE_S if is_busy else math.inf)

    def forget_sleep(self, name: str) -> None:
        """Forget sleep and failed sleep calls of a model with new instances, which are awake."""
        self._asleep_s.pop(name, None)
        self._sleepers.discard(name)
        self._not_before_s.pop(name, None)

    def record_memory(self, by_model: Mapping[str, Sizes]) -> None:
        """Record the memory of models' processes; a sleeping model has less than when awake."""
        self._sizes_now = dict(by_model)
        for name in [*filter(self._has_woken, self._waking_s)]:
            self._forget_wake(name)
        for name, sizes in by_model.items():
            if (
                name not in self._reserved
                and name in self._models
                and self._models[name].serving_configs
                and not self._is_asleep(name)
            ):
                # of several instances some may sleep
                before = self._sizes.get(name) if name in self._sleepers else None
                self._sizes[name] = sizes | (before or Sizes())

    def _is_asleep(self, name: str) -> bool:
        """True until the sleeping model has a request, which wakes it up."""
        return self.usage.last_used_s(name) <= self._asleep_s.get(name, -math.inf)

    def _can_sleep(self, name: str) -> bool:
        """True if it is worthwhile to ask the model to sleep."""
        return not (
            self._plan.now_s < self._not_before_s.get(name, -math.inf) or self._is_asleep(name)
        )

    def _has_woken(self, name: str) -> bool:
        """True once a woken model's memory was measured while it is idle."""
        return not (self._plan.now_s - self._waking_s[name] < GRACE_S or self.usage.is_busy(name))

    def _forget_wake(self, name: str) -> None:
        if self._waking_s.pop(name, None) is not None:
            self._reserved.pop(name, None)

    # ----------------------------------------------------------- what follows

    def make_room(self, name: str, *, wakes: bool) -> Room:
        """Return the models that must sleep or be unloaded to make room; empty if there is room.

        Raises Unavailable if the room would not suffice even then. `wakes` is True for a loaded
        model.
        """
        needed, is_known = self._estimate_wake(name) if wakes else self._estimate(name)
        used, kept = self._used, self._with_needs(name)
        groups = self._candidates(kept)
        lacking = self._excess(used + needed)
        leaving, freed = self._choose(groups, lacking)
        if lacking - freed and not is_known:
            # Nobody knows how much it takes; anything may fit while something is left.
            lacking = self._excess(used + Sizes(dict.fromkeys(self._budgets, 1)))
            leaving, freed = self._choose(groups, lacking)
        if left := lacking - freed:
            cannot = "cannot wake up" if wakes else "is not loaded"
            raise self._refusal(name, cannot, min(left), used, needed if is_known else Sizes())
        return self._make_room(leaving, f"to make room for '{name}'")

    def enforce_limits(self) -> Room:
        """Evict models that were idle for too long, and models beyond the budgets."""
        for name in self.usage.overdue_models():
            idle_s = self._plan.now_s - self.usage.last_used_s(name)
            why = f"after {idle_s:.0f} s without requests"
            self._evict(
                name,
                IDLE,
                why,
                Reason.of(Kind.IDLE, _text(why), idle_s=round(idle_s)),
            )
        leaving, _ = self._choose(self._candidates(()), self._excess(self._used))
        return self._make_room(leaving, TOO_MUCH)

    def _candidates(self, kept: Collection[str]) -> list[list[str]]:
        """Return evictable models, least recently used first; sleeping ones last.

        Those hold little. If models that can sleep came first, a used one would sleep instead of an
        idle one.
        """
        return sorted(
            self.usage.eviction_candidates(kept), key=lambda group: self._is_asleep(group[-1])
        )

    def _make_room(self, leaving: list[str], why: str) -> Room:
        """Let the models sleep that can; if none can, evict all. Return the models."""
        sleepers = [name for name in leaving if self._sizes_now.get(name) and self._can_sleep(name)]
        if sleepers:
            return Room(sleepers=sleepers)
        reason = Reason.of(Kind.EVICTED, _text(why), purpose=why)
        for name in leaving:
            self._evict(name, MEMORY, why, reason)
        return Room(leaving=leaving)

    def _refusal(
        self, name: str, cannot: str, place: int, used: Sizes, needed: Sizes
    ) -> Unavailable:
        where = "" if place == HOST else f" on GPU {place}"
        option = "--model-memory-budget" if place == HOST else "--gpu-memory-budget"
        wants = f" and it takes about {_mib(needed[place])}" if needed else ""
        return Unavailable(
            f"model '{name}' {cannot}: models take {_mib(used[place])}{where} of the "
            f"{_mib(self._budgets[place])} that {option} allows{wants}, and nothing that "
            "could be unloaded is idle"
        )

    @property
    def _used(self) -> Sizes:
        none, total = Sizes(), Sizes()
        for name in {*self._sizes_now, *self._reserved}:
            # of two counters, the greater number of each place
            total += self._sizes_now.get(name, none) | self._reserved.get(name, none)
        return total

    def _excess(self, used: Sizes) -> Sizes:
        """Return the bytes that exceed the budgets."""
        limits = self._budgets.items()
        return Sizes({place: used[place] - limit for place, limit in limits if used[place] > limit})

    def _choose(self, groups: Iterable[list[str]], lacking: Sizes) -> tuple[list[str], Sizes]:
        """Choose models with enough memory for the lack, or all that have a part of it.

        Also returns their memory.
        """
        names: list[str] = []
        freed = Sizes()
        for group in groups if lacking else ():
            new = [name for name in group if name not in names]
            sizes = sum((self._sizes_now.get(name, Sizes()) for name in new), Sizes())
            if (lacking - freed) & sizes:
                names += new
                freed += sizes
        return names, freed

    def _estimate(self, name: str) -> tuple[Sizes, bool]:
        """Return the memory that a load with its further models will need, and whether it is known.

        A model that was never seen is taken for an average one.
        """
        models = self._models
        new = [
            n
            for n in self._with_needs(name)
            if n not in models or not (models[n].serving_configs or models[n].dependencies.members)
        ]
        sizes = self._sizes
        total = sum(sizes.values(), Sizes())
        average = Sizes({place: size // len(sizes) for place, size in total.items()})
        return sum((sizes.get(n, average) for n in new), Sizes()), all(n in sizes for n in new)

    def _estimate_wake(self, name: str) -> tuple[Sizes, bool]:
        """Return the memory that a sleeping model needs to wake up, and whether it is known."""
        none = Sizes()
        now = self._sizes_now.get(name, none) | self._reserved.get(name, none)
        return self._sizes.get(name, none) - now, name in self._sizes

    def _with_needs(self, name: str) -> list[str]:
        names = [name]
        for each in names:
            model = self._models.get(each)
            names += (
                [n for n in model.dependencies.loaded_before if n not in names]
                if model is not None
                else []
            )
        return names

    def _evict(self, name: str, kind: str, why: str, reason: Reason) -> None:
        self._plan.log("I", f"unloading '{name}': {why}")
        self._note(name, kind, f"unloaded {why}")
        self._sizes_now.pop(name, None)
        self._forget_wake(name)
        self._models[name].evict(reason)

    # --------------------------------------------------------------- showing

    def _note(self, name: str, what: str, event: str) -> None:
        history = self._history.setdefault(name, _ModelHistory())
        history.counts[what] += 1
        history.event, history.at_s = event, self._plan.now_s

    def describe(self) -> dict[str, Any]:
        now_s, used = self._plan.now_s, self._used
        rows = [
            {
                "model": name,
                "event": history.event,
                "seconds_ago": round(now_s - history.at_s, 3),
                "bytes": self._sizes_now.get(name, Sizes())[HOST],
                "gpu_bytes": {
                    gpu: size
                    for gpu, size in self._sizes_now.get(name, Sizes()).items()
                    if gpu != HOST
                },
                **{what: history.counts[what] for what in _COUNTED},
            }
            for name, history in sorted(self._history.items())
        ]
        gpus = [
            {"gpu": gpu, "budget_bytes": self._budgets[gpu], "used_bytes": used[gpu]}
            for gpu in self.gpus
        ]
        budget, total = self._budgets[HOST], used[HOST]
        return {"models": rows, "budget_bytes": budget, "used_bytes": total, "gpus": gpus}


def _text(why: str) -> str:
    return f"not loaded: unloaded {why}"


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
