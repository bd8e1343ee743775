"""Evicts models that were loaded on demand.

A model goes if it was idle for too long; and where memory has a budget, the models that were not
used for longest go until another one fits. The memory counted is that of the models' processes,
without GPUs. Keeps what was done when and why. Called by `on_demand.py`, which keeps its data
fresh. Does no I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from zmqtriton.supervisor.features.on_demand.usage import ModelUsage
from zmqtriton.supervisor.models.model import Model
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.policy import Policy
from zmqtriton_floor.errors import Unavailable, ZmqTritonError
from zmqtriton_floor.reasons import Kind, Reason

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
