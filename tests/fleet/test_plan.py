"""Loads and unloads that are to be done; and seeded days of a fleet whose nodes come and go."""

from __future__ import annotations

import random

import pytest

from zmqtriton.fleet.plan import Action, NodeView, Plan, Task
from zmqtriton.fleet.replicas import ModelLoad, ReplicaLimits

BUSY = ModelLoad(queued=100, instances=1, utilization=1)


def view(*models: str, loading: str = "") -> NodeView:
    """A node with models, one of which may not be ready yet."""
    return NodeView(frozenset(models) | ({loading} - {""}), frozenset(models))


def test_a_model_is_loaded_on_as_many_nodes_as_it_should_be() -> None:
    plan = Plan({"m": ReplicaLimits(2, 2)})
    seen = {"a": view(), "b": view("m"), "c": view()}

    assert [Task(Action.LOAD, "a", "m")] == plan.decide(seen, 0)
    assert [] == plan.decide(seen, 1), "it is under way"
    assert not plan.is_whole(seen)
    assert plan.is_whole({**seen, "a": view("m")})


def test_models_are_spread() -> None:
    plan = Plan({model: ReplicaLimits(1, 1) for model in "xyz"})
    seen = {node: view() for node in "abc"}

    assert {("a", "x"), ("b", "y"), ("c", "z")} == {
        (task.node, task.model) for task in plan.decide(seen, 0)
    }


def test_a_node_has_one_task_at_a_time() -> None:
    plan = Plan({model: ReplicaLimits(1, 1) for model in "xy"})
    seen = {"a": view()}
    first = plan.decide(seen, 0)

    plan.finish(first[0], 1)

    assert [Task(Action.LOAD, "a", "x")] == first
    assert [Task(Action.LOAD, "a", "y")] == plan.decide({"a": view("x")}, 1)


def test_a_copy_too_many_goes_only_when_the_others_are_ready() -> None:
    plan = Plan({"m": ReplicaLimits(1, 1)})

    assert [] == plan.decide({"a": view(loading="m"), "b": view("m")}, 0)
    assert [Task(Action.UNLOAD, "b", "m")] == plan.decide({"a": view("m"), "b": view("m")}, 1)


def test_a_load_that_has_failed_is_tried_elsewhere_and_later_again() -> None:
    plan = Plan({"m": ReplicaLimits(1, 1)})
    seen = {"a": view(), "b": view()}
    [task] = plan.decide(seen, 0)

    plan.finish(task, 0, has_failed=True)

    [elsewhere] = plan.decide(seen, 0)
    assert "b" == elsewhere.node
    plan.finish(elsewhere, 0, has_failed=True)
    assert [] == plan.decide(seen, 0.5)
    assert [task] == plan.decide(seen, 2)


def test_other_models_are_left_alone() -> None:
    assert [] == Plan({"m": ReplicaLimits(1, 1)}).decide({"a": view("m", "own")}, 0)


def test_a_model_whose_requests_wait_gets_another_node() -> None:
    plan = Plan({"m": ReplicaLimits(1, 2, up_after_s=5)})
    busy = NodeView(frozenset("m"), frozenset("m"), {"m": BUSY})

    tasks = [plan.decide({"a": busy, "b": view()}, second) for second in range(6)]

    assert [[]] * 5 + [[Task(Action.LOAD, "b", "m")]] == tasks


def test_the_first_node_does_not_get_all_models() -> None:
    plan = Plan({model: ReplicaLimits(1, 1) for model in "xy"})

    assert [] == plan.decide({"a": view()}, 0, nodes=2)
    tasks = plan.decide({"a": view(), "b": view()}, 1, nodes=2)
    assert {"a", "b"} == {task.node for task in tasks}


def test_a_node_that_does_not_come_is_not_waited_for_for_ever() -> None:
    plan = Plan({"m": ReplicaLimits(1, 1)})

    assert [] == plan.decide({"a": view()}, 0, nodes=2)
    assert [Task(Action.LOAD, "a", "m")] == plan.decide({"a": view()}, 30, nodes=2)


class FleetDay:
    """A fleet whose nodes die and return, and whose loads take time and may fail."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.limits = {
            "x": ReplicaLimits(1, 1),
            "y": ReplicaLimits(2, 2),
            "z": ReplicaLimits(1, 4, up_after_s=3, down_after_s=30),
        }
        self.plan = Plan(self.limits)
        self.nodes: dict[str, set[str]] = {node: set() for node in "abcd"}
        self._tasks: list[tuple[float, Task]] = []
        self.now_s = 0.0
        self.are_loads_reliable = False

    def step(self) -> None:
        self.now_s += 0.5
        self._end_tasks()
        seen = self.seen()
        for task in self.plan.decide(seen, self.now_s):
            assert task.node not in {other.node for _, other in self._tasks}, "one task at a time"
            if task.action is Action.UNLOAD:
                left = [n for n, view in seen.items() if task.model in view.ready]
                assert len(left) > self.plan.counts()[task.model], "none is missed"
            self._tasks.append((self.now_s + self._chance.uniform(0, 5), task))

    def seen(self) -> dict[str, NodeView]:
        share = self._chance.choice([0, 1]) if not self.are_loads_reliable else 0
        load = ModelLoad(9 * share, 1, share)
        return {
            node: NodeView(frozenset(models), frozenset(models), dict.fromkeys(models, load))
            for node, models in self.nodes.items()
        }

    def disturb(self) -> None:
        node = self._chance.choice("abcd")
        if node not in self.nodes:
            self.nodes[node] = set()
        elif len(self.nodes) > 1 and self._chance.random() < 0.5:
            del self.nodes[node]

    def _end_tasks(self) -> None:
        due = [(end_s, task) for end_s, task in self._tasks if end_s <= self.now_s]
        for entry in due:
            self._tasks.remove(entry)
            task = entry[1]
            is_there = task.node in self.nodes
            has_failed = not is_there or (
                not self.are_loads_reliable and self._chance.random() < 0.3
            )
            if not has_failed and task.action is Action.LOAD:
                self.nodes[task.node].add(task.model)
            elif not has_failed:
                self.nodes[task.node].discard(task.model)
            self.plan.finish(task, self.now_s, has_failed=has_failed)


@pytest.mark.parametrize("seed", range(20))
def test_a_fleet_is_whole_again_after_whatever_a_day_brings(seed: int) -> None:
    day = FleetDay(seed)
    chance = random.Random(seed)
    for _ in range(400):
        if chance.random() < 0.1:
            day.disturb()
        day.step()

    day.are_loads_reliable = True
    for node in "abcd":
        day.nodes.setdefault(node, set())
    for _ in range(500):
        day.step()

    assert day.plan.is_whole(day.seen())
    counts = {m: sum(m in models for models in day.nodes.values()) for m in day.limits}
    assert {"x": 1, "y": 2, "z": 1} == counts, "as many as without load, and no more"
