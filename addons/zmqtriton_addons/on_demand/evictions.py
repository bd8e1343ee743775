"""Evicts models that were loaded on demand.

A model goes if it was idle for too long; and where memory has a budget, the models that were not
used for longest go until another one fits. The memory counted is that of the models' processes,
without GPUs. Keeps what was done when and why. Called by `on_demand.py`, which keeps its data
fresh. Does no I/O.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from zmqtriton.supervisor import Model, Plan, Policy, reaches
from zmqtriton_floor.errors import Unavailable, ZmqTritonError
from zmqtriton_floor.reasons import Kind, Reason

#: After a load on demand, the requests that caused it get this long to arrive.
GRACE_S = 5.0
#: The model parameter that limits its idle time, in seconds; 0 is no limit.
IDLE_PARAMETER = "unload_idle_after_seconds"


class ModelUsage:
    """Which models may be evicted, and in which order: their use, since when, and by whom.

    Fed by `on_demand.py` with the broker's counts; ends nothing itself. Only a model that is loaded
    on demand is ever named, and never one that is in use or about to be. Does no I/O.
    """

    def __init__(self, plan: Plan, models: Mapping[str, Model], idle_after_s: float) -> None:
        self._plan = plan
        self._models = models
        self._idle_after_s = idle_after_s
        self._loaded_s: dict[str, float] = {}
        self._used_s: dict[str, float] = {}
        self._busy: set[str] = set()
        #: The broker has told what is busy.
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
        """Return when it was used or loaded."""
        return max(self._used_s.get(name, -math.inf), self._loaded_s.get(name, -math.inf))

    def overdue_models(self) -> list[str]:
        """Return the models that were idle for as long as they may be."""
        return [
            name
            for name in self._on_demand_models()
            if self._plan.now_s - self.last_used_s(name) >= self.idle_limit_s(name)
            and self.eviction_group(name) == [name]
        ]

    def eviction_candidates(self, kept: Collection[str]) -> list[list[str]]:
        """Return evictable models, least recently used first, each with those that go before it."""
        groups = [self.eviction_group(name) for name in self._on_demand_models()]
        candidates = [
            group
            for group in groups
            if group is not None
            and not set(group) & set(kept)
            and not any(map(self._is_in_grace, group))
        ]
        return sorted(candidates, key=lambda group: max(map(self.last_used_s, group)))

    def eviction_group(self, name: str) -> list[str] | None:
        """Return the model behind the ensembles that have it as a member; None if one must stay."""
        names = [name]
        for each in names:
            names += [
                n
                for n, m in self._models.items()
                if each in m.dependencies.served_members and n not in names
            ]
        return names[::-1] if all(map(self._can_be_evicted, names)) else None

    def idle_limit_s(self, name: str) -> float:
        """Return how long it may be idle."""
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


IDLE, MEMORY = "idle", "memory"


class _ModelHistory:
    """The last event and the counts of one model."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        #: What happened last, and when.
        self.event, self.at_s = "", 0.0


class Evictor:
    def __init__(self, plan: Plan, models: Mapping[str, Model], policy: Policy) -> None:
        self._plan = plan
        self._models = models
        self._budget = policy.memory_budget_bytes
        self.usage = ModelUsage(plan, models, policy.unload_idle_after_s)
        #: The memory of models that have processes, and what others took when they last had some.
        self._bytes: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        #: The estimated memory of models that are being loaded.
        self._reserved: dict[str, int] = {}
        self._history: dict[str, _ModelHistory] = {}

    @property
    def has_budget(self) -> bool:
        return self._budget > 0

    @property
    def has_candidates(self) -> bool:
        """True if there is a model that may have to go."""
        return self.shortest_idle_limit_s() < float("inf") or (
            self.has_budget
            and any(m.is_on_demand and m.serving_configs for m in self._models.values())
        )

    def shortest_idle_limit_s(self) -> float:
        """Return the shortest idle limit of all models."""
        return self.usage.shortest_idle_limit_s()

    # --------------------------------------------------------- what is told

    def reserve(self, name: str) -> None:
        """Reserve memory for a model that is being loaded."""
        self._reserved[name] = self._estimate_bytes(name)[0]

    def load_ended(self, name: str, error: ZmqTritonError | None) -> None:
        """Note that its load is over."""
        self._reserved.pop(name, None)
        if error is not None:
            self._note(name, "failures", f"load failed: {error.text.strip()}")
            return
        self._note(name, "loads", "loaded for a request")
        for each in self._with_needs(name):
            self.usage.record_load(each)

    def record_memory(self, bytes_by_model: Mapping[str, int]) -> None:
        """Record the memory of each model's processes."""
        self._bytes = dict(bytes_by_model)
        for name, size in bytes_by_model.items():
            if (
                name not in self._reserved
                and name in self._models
                and self._models[name].serving_configs
            ):
                self._sizes[name] = size

    # ----------------------------------------------------------- what follows

    def make_room(self, name: str) -> list[str]:
        """Return the models that must go to make room; none if it fits.

        Raises Unavailable if it would not fit even then.
        """
        needed, is_known = self._estimate_bytes(name)
        used, budget = self._used_bytes, self._budget
        kept = self._with_needs(name)
        names, freed = self._choose_victims(used + needed - budget, kept)
        if used + needed - freed > budget and not is_known:
            # Nobody knows how much it takes; anything may fit while something is left.
            names, freed = self._choose_victims(used - budget + 1, kept)
            needed = 1
        if used + needed - freed > budget:
            wants = f" and it takes about {_mib(needed)}" if is_known else ""
            raise Unavailable(
                f"model '{name}' is not loaded: models take {_mib(used)} of the "
                f"{_mib(budget)} that --model-memory-budget allows{wants}, and nothing that "
                "could be unloaded is idle"
            )
        self._evict_for_memory(names, f"to make room for '{name}'")
        return names

    def enforce_limits(self) -> None:
        """Evict models that were idle for too long, and those beyond the budget."""
        for name in self.usage.overdue_models():
            idle_s = self._plan.now_s - self.usage.last_used_s(name)
            why = f"after {idle_s:.0f} s without requests"
            self._evict(name, IDLE, why, Reason.of(Kind.IDLE, _text(why), idle_s=round(idle_s)))
        if self.has_budget:
            names, _ = self._choose_victims(self._used_bytes - self._budget, ())
            self._evict_for_memory(names, "models took more than their memory budget")

    @property
    def _used_bytes(self) -> int:
        names = {*self._bytes, *self._reserved}
        return sum(max(self._bytes.get(n, 0), self._reserved.get(n, 0)) for n in names)

    def _choose_victims(self, lacking: int, kept: Collection[str]) -> tuple[list[str], int]:
        """Choose the models to evict to free this much, or all that can go.

        Return also what that frees.
        """
        names: list[str] = []
        freed = 0
        for group in self.usage.eviction_candidates(kept) if lacking > 0 else ():
            new = [name for name in group if name not in names]
            size = sum(self._bytes.get(name, 0) for name in new)
            if freed < lacking and size:
                names += new
                freed += size
        return names, freed

    def _estimate_bytes(self, name: str) -> tuple[int, bool]:
        """Return the estimated memory of a load with its further models.

        Whether it was ever seen.

        A model that was never seen is taken for an average one.
        """
        models = self._models
        new = [
            n for n in self._with_needs(name) if n not in models or not models[n].serving_configs
        ]
        new = [n for n in new if n not in models or not models[n].dependencies.members]
        sizes = self._sizes
        average = sum(sizes.values()) // len(sizes) if sizes else 0
        return sum(sizes.get(n, average) for n in new), all(n in sizes for n in new)

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

    def _evict_for_memory(self, names: Collection[str], why: str) -> None:
        reason = Reason.of(Kind.EVICTED, _text(why), purpose=why)
        for name in names:
            self._evict(name, MEMORY, why, reason)

    def _evict(self, name: str, kind: str, why: str, reason: Reason) -> None:
        self._plan.log("I", f"unloading '{name}': {why}")
        self._note(name, kind, f"unloaded {why}")
        self._bytes.pop(name, None)
        self._models[name].evict(reason)

    # --------------------------------------------------------------- showing

    def _note(self, name: str, what: str, event: str) -> None:
        history = self._history.setdefault(name, _ModelHistory())
        history.counts[what] += 1
        history.event, history.at_s = event, self._plan.now_s

    def describe(self) -> dict[str, Any]:
        now_s = self._plan.now_s
        rows = [
            {
                "model": name,
                "event": history.event,
                "seconds_ago": round(now_s - history.at_s, 3),
                "bytes": self._bytes.get(name, 0),
                **{what: history.counts[what] for what in ("loads", "failures", IDLE, MEMORY)},
            }
            for name, history in sorted(self._history.items())
        ]
        return {"models": rows, "budget_bytes": self._budget, "used_bytes": self._used_bytes}


def _text(why: str) -> str:
    return f"not loaded: unloaded {why}"


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
