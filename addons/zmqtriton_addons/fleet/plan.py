"""The plan of a fleet: the loads and unloads of each server, given the present state. Pure.

Concerns only models that have a number of nodes; all others are the servers' own. A copy goes only
when as many as there should be are ready elsewhere: it is drained, so that proxies send nothing
more, and unloaded when nobody can come any more who was sent before. Each node has one task at a
time.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from typing import NamedTuple

from zmqtriton_addons.fleet.copies import Copies, NodeView, Place
from zmqtriton_addons.fleet.placement import choose_nodes, uneven_nodes
from zmqtriton_addons.fleet.replicas import ReplicaLimits, ReplicaTarget

#: After a failure, and twice as long after each further one: a load that fails makes its server
#: unready for a moment, so requests for other models would suffer from many of them.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 5.0, 600.0
#: The time that nodes have to come up at first, before those that are there get all models.
_GATHER_WITHIN_S = 30.0
#: After a failed load a node gets that model for the sake of evenness no sooner than this.
_FORGIVEN_AFTER_S = 600.0
#: A copy that is ready replaces another one when proxies have had this time to learn of it.
KNOWN_AFTER_S = 5.0
#: A client that the proxy has forgotten may still use its connection to the proxy's former process:
#: HAProxy's `timeout http-keep-alive`.
FORGOTTEN_AFTER_S = 60.0


class Action(Enum):
    LOAD = "load"
    DRAIN = "drain"
    UNDRAIN = "undrain"
    UNLOAD = "unload"


class Task(NamedTuple):
    action: Action
    node: str
    model: str


class Plan:
    def __init__(self, limits: Mapping[str, ReplicaLimits]) -> None:
        self._targets = {model: ReplicaTarget(limit) for model, limit in limits.items()}
        self._running: dict[str, Task] = {}
        self._first_seen_s: float | None = None
        self._has_gathered = False
        #: By node and model: since when copies are ready.
        self._ready_since_s: dict[Place, float] = {}
        #: Copies that were drained, and when they can go.
        self._leaving: dict[Place, float] = {}
        #: Tasks that have failed: how often in a row, and when they may be tried again.
        self._failures: dict[Task, tuple[int, float]] = {}

    def counts(self) -> dict[str, int]:
        """Return how many nodes each model should have."""
        return {model: target.count for model, target in self._targets.items()}

    def decide(self, seen: Mapping[str, NodeView], now_s: float, nodes: int = 0) -> list[Task]:
        """Return the tasks to begin now, when so many nodes are to be there.

        Each must be told to `finish`.
        """
        if not self._is_gathered(len(seen), nodes, now_s):
            return []
        ready = [(node, model) for node, view in seen.items() for model in view.ready]
        self._ready_since_s = {place: self._ready_since_s.get(place, now_s) for place in ready}
        copies = self._copies(seen)
        chosen: dict[str, set[str]] = {}
        begun: list[Task] = []
        for model in sorted(self._targets):
            chosen[model] = self._choose(model, copies, now_s)
            for task in self._tasks(model, copies, chosen[model], now_s):
                if not self._is_paused(task, now_s) and task.node not in self._running:
                    begun.append(self._begin(task, copies))
        if not begun:
            begun += [self._begin(task, copies) for task in self._moves(copies, chosen, now_s)]
        return begun

    def finish(self, task: Task, now_s: float, *, has_failed: bool = False) -> None:
        """Take note that a task has ended; a failed one is tried again later."""
        del self._running[task.node]
        if has_failed:
            times = self._failures.get(task, (0, 0.0))[0] + 1
            pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** (times - 1))
            self._failures[task] = times, now_s + pause_s
            return
        self._failures.pop(task, None)
        if task.action is Action.DRAIN:
            self._leaving[task.node, task.model] = now_s + FORGOTTEN_AFTER_S
        else:
            self._leaving.pop((task.node, task.model), None)

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

    def _copies(self, seen: Mapping[str, NodeView]) -> Copies:
        for node, model in list(self._leaving):
            if node in seen and model not in seen[node].models:
                # its server has been started again
                del self._leaving[node, model]
        loads = [task for task in self._running.values() if task.action is Action.LOAD]
        return Copies(
            seen,
            self._targets,
            loading=[(task.node, task.model) for task in loads],
            leaving=self._leaving,
            failed={(t.node, t.model) for t in self._failures if t.action is Action.LOAD},
        )

    def _begin(self, task: Task, copies: Copies) -> Task:
        self._running[task.node] = task
        if task.action is Action.LOAD:
            copies.begin_load(task.node, task.model)
        return task

    def _choose(self, model: str, copies: Copies, now_s: float) -> set[str]:
        """Return the nodes that should have a model."""
        target, ready = self._targets[model], copies.ready(model)
        count = target.decide(copies.load(model), len(ready), len(copies.nodes), now_s)
        having = copies.having(model)
        others = {node: copies.count(node, without=model) for node in copies.nodes}
        loads = {node: Task(Action.LOAD, node, model) for node in copies.nodes}
        avoided = {node for node, task in loads.items() if self._is_paused(task, now_s)}
        # one that leaves can come back at once, but one that stays is better
        avoided |= having - copies.staying(model)
        return choose_nodes(count, having, others, avoided)

    def _tasks(
        self, model: str, copies: Copies, chosen: Collection[str], now_s: float
    ) -> Iterator[Task]:
        """Return the tasks for a model, also those that must wait."""
        ready_s = [self._ready_since_s.get((node, model), math.inf) for node in chosen]
        are_enough = all(now_s - since_s >= KNOWN_AFTER_S for since_s in ready_s)
        for node in copies.nodes:
            has_copy = copies.has(node, model)
            if node in chosen:
                if not has_copy:
                    yield Task(Action.LOAD, node, model)
                elif not copies.stays(node, model):
                    yield Task(Action.UNDRAIN, node, model)
            elif copies.is_broken(node, model):
                # it serves nobody, and makes its server unready
                yield Task(Action.UNLOAD, node, model)
            elif has_copy and are_enough:
                yield from self._parting(node, model, copies, now_s)

    def _parting(self, node: str, model: str, copies: Copies, now_s: float) -> Iterator[Task]:
        """Return the next step to the end of a copy that is too many."""
        ends_s = self._leaving.get((node, model))
        if ends_s is None and copies.is_ready(node, model):
            yield Task(Action.DRAIN, node, model)
        elif ends_s is None or now_s >= ends_s:
            yield Task(Action.UNLOAD, node, model)

    def _moves(
        self, copies: Copies, chosen: Mapping[str, Collection[str]], now_s: float
    ) -> Iterator[Task]:
        """Return a load on the node that has the fewest models, if another one has too many.

        When it is ready there are too many copies, and that of the fuller node goes.
        """
        placed = {
            node: {model for model, nodes in chosen.items() if node in nodes}
            for node in copies.nodes
        }
        uneven = uneven_nodes(placed)
        if uneven is None:
            return
        fullest, emptiest = uneven
        if emptiest in self._running or copies.count(emptiest) > len(placed[emptiest]):
            return
        for model in sorted(placed[fullest] - placed[emptiest]):
            task = Task(Action.LOAD, emptiest, model)
            is_at_rest = copies.staying(model) == set(chosen[model]) <= copies.ready(model)
            is_banned = self._is_paused(task, now_s - _FORGIVEN_AFTER_S)
            if is_at_rest and not is_banned and not copies.has(emptiest, model):
                yield task
                return

    def _is_paused(self, task: Task, now_s: float) -> bool:
        return now_s < self._failures.get(task, (0, -math.inf))[1]
