"""Which models may be evicted, and in which order: their use, since when, and by whom.

Fed by `on_demand.py` with the broker's counts; ends nothing itself. Only a model that is loaded on
demand is ever named, and never one that is in use or about to be. Does no I/O.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from zmqtriton.supervisor.models.call_graph import reaches
from zmqtriton.supervisor.models.model import Model
from zmqtriton.supervisor.plan import Plan

#: After a load on demand, the requests that caused it get this long to arrive.
GRACE_S = 5.0
#: The model parameter that limits its idle time, in seconds; 0 is no limit.
IDLE_PARAMETER = "unload_idle_after_seconds"


class ModelUsage:
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
