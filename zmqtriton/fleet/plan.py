"""The plan of a fleet: which model is to be loaded and unloaded where, given what is seen. Pure.

Concerns only models that have a number of nodes; all others are the servers' own. A copy is
unloaded only when as many as there should be are ready elsewhere, and each node has one task at a
time.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from zmqtriton.fleet.placement import choose_nodes
from zmqtriton.fleet.replicas import ModelLoad, ReplicaLimits, ReplicaTarget
from zmqtriton.supervisor.backoff import Backoff

_LONGEST_PAUSE_S = 60.0
#: The time that nodes have to come up at first, before those that are there get all models.
_GATHER_WITHIN_S = 30.0


class Action(Enum):
    LOAD = "load"
    UNLOAD = "unload"


class Task(NamedTuple):
    action: Action
    node: str
    model: str


class NodeView(NamedTuple):
    """A node whose server answers: the models that it should serve, and those that are ready."""

    models: frozenset[str] = frozenset()
    ready: frozenset[str] = frozenset()
    loads: Mapping[str, ModelLoad] = {}


class Plan:
    def __init__(self, limits: Mapping[str, ReplicaLimits]) -> None:
        self._targets = {model: ReplicaTarget(limit) for model, limit in limits.items()}
        self._running: dict[str, Task] = {}
        self._first_seen_s: float | None = None
        self._has_gathered = False
        self._failures: dict[tuple[str, str], tuple[Backoff, float]] = {}

    def counts(self) -> dict[str, int]:
        """Return how many nodes each model should have."""
        return {model: target.count for model, target in self._targets.items()}

    def decide(self, seen: Mapping[str, NodeView], now_s: float, nodes: int = 0) -> list[Task]:
        """Return the tasks to begin now, when so many nodes are to be there.

        Each must be told to `finish`.
        """
        if not self._is_gathered(len(seen), nodes, now_s):
            return []
        begun: list[Task] = []
        held = {node: set(view.models & self._targets.keys()) for node, view in seen.items()}
        for task in self._running.values():
            if task.node in held and task.action is Action.LOAD:
                held[task.node].add(task.model)
        for model in sorted(self._targets):
            for task in self._tasks(model, seen, held, now_s):
                self._running[task.node] = task
                held[task.node].add(task.model)
                begun.append(task)
        return begun

    def finish(self, task: Task, now_s: float, *, has_failed: bool = False) -> None:
        """Take note that a task has ended; a load that has failed is tried again later."""
        del self._running[task.node]
        key = task.node, task.model
        if not has_failed:
            self._failures.pop(key, None)
            return
        backoff, _ = self._failures.get(key, (Backoff(_LONGEST_PAUSE_S), 0.0))
        backoff.record_death(now_s)
        self._failures[key] = backoff, now_s + max(1.0, backoff.pause_s)

    def is_whole(self, seen: Mapping[str, NodeView]) -> bool:
        """Return whether each model is ready on as many nodes as it should be."""
        return all(
            sum(model in view.ready for view in seen.values()) >= target.count
            for model, target in self._targets.items()
        )

    def _is_gathered(self, seen: int, nodes: int, now_s: float) -> bool:
        """Return whether all nodes were there once, or have had enough time."""
        if seen and self._first_seen_s is None:
            self._first_seen_s = now_s
        is_late = self._first_seen_s is not None and now_s - self._first_seen_s >= _GATHER_WITHIN_S
        self._has_gathered = self._has_gathered or seen >= nodes or is_late
        return self._has_gathered

    def _tasks(
        self, model: str, seen: Mapping[str, NodeView], held: Mapping[str, set[str]], now_s: float
    ) -> list[Task]:
        having = {node for node, models in held.items() if model in models}
        ready = {node for node, view in seen.items() if model in view.ready}
        load = sum((v.loads.get(model, ModelLoad()) for v in seen.values()), ModelLoad())
        count = self._targets[model].decide(load, len(ready), len(seen), now_s)
        others = {node: len(models - {model}) for node, models in held.items()}
        avoided = {node for node in held if self._is_paused(node, model, now_s)}
        chosen = choose_nodes(count, having, others, avoided)
        wanted = [Task(Action.LOAD, node, model) for node in sorted(chosen - having - avoided)]
        if len(ready & chosen) >= min(count, len(chosen)):
            wanted += [Task(Action.UNLOAD, node, model) for node in sorted(having - chosen)]
        return [task for task in wanted if task.node not in self._running]

    def _is_paused(self, node: str, model: str, now_s: float) -> bool:
        return now_s < self._failures.get((node, model), (None, 0.0))[1]
