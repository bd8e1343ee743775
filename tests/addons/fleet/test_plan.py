"""Loads and unloads that are to be done; and seeded days of a fleet whose nodes come and go."""

from __future__ import annotations

import random

import pytest

from zmqtriton_addons.fleet.copies import NodeView
from zmqtriton_addons.fleet.plan import FORGOTTEN_AFTER_S, KNOWN_AFTER_S, Action, Plan, Task
from zmqtriton_addons.fleet.replicas import ModelLoad, ReplicaLimits

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


def test_a_copy_too_many_goes_only_when_proxies_know_that_the_others_are_ready() -> None:
    plan = Plan({"m": ReplicaLimits(1, 1)})
    both = {"a": view("m"), "b": view("m")}

    assert [] == plan.decide({"a": view(loading="m"), "b": view("m")}, 0)
    assert [] == plan.decide(both, 10)
    assert [Task(Action.DRAIN, "b", "m")] == plan.decide(both, 10 + KNOWN_AFTER_S)


def drained_plan() -> Plan:
    """One whose model m has been drained on b, since it is ready on a, too."""
    plan = Plan({"m": ReplicaLimits(1, 1)})
    plan.decide({"a": view("m"), "b": view("m")}, -KNOWN_AFTER_S - 1)
    [drain] = plan.decide({"a": view("m"), "b": view("m")}, -1)
    plan.finish(drain, 0)
    return plan


def test_a_copy_too_many_is_unloaded_when_nobody_can_come_any_more() -> None:
    plan = drained_plan()
    seen = {"a": view("m"), "b": view(loading="m")}

    assert [] == plan.decide(seen, FORGOTTEN_AFTER_S - 1)
    assert [Task(Action.UNLOAD, "b", "m")] == plan.decide(seen, FORGOTTEN_AFTER_S)


def test_a_drained_copy_serves_again_when_it_is_needed_after_all() -> None:
    plan = drained_plan()

    assert [Task(Action.UNDRAIN, "b", "m")] == plan.decide({"b": view(loading="m")}, 1)


def test_a_drained_copy_whose_server_starts_again_is_loaded_as_any_other() -> None:
    plan = drained_plan()

    assert [Task(Action.LOAD, "b", "m")] == plan.decide({"b": view()}, 1)


def test_a_returning_node_gets_models_of_the_fullest() -> None:
    plan = Plan({model: ReplicaLimits(1, 1) for model in "wxyz"})
    full = view(*"wxyz")

    [load] = plan.decide({"a": full, "b": view()}, 0)
    assert Task(Action.LOAD, "b", "w") == load
    assert [] == plan.decide({"a": full, "b": view(loading="w")}, 1), "it is under way"
    plan.finish(load, 2)
    both = {"a": full, "b": view("w")}
    [load] = plan.decide(both, 2)
    assert Task(Action.LOAD, "b", "x") == load, "there are still more on the other"
    assert [Task(Action.DRAIN, "a", "w")] == plan.decide(both, 2 + KNOWN_AFTER_S)
    plan.finish(load, 10)
    even = {"a": view("x", "y", "z", loading="w"), "b": view("w", "x")}
    assert [] == plan.decide(even, 10), "two on each will stay"


def test_models_do_not_move_for_a_difference_of_one() -> None:
    plan = Plan({model: ReplicaLimits(1, 1) for model in "xyz"})

    assert [] == plan.decide({"a": view("x", "y"), "b": view("z")}, 0)


def test_no_model_moves_to_a_node_where_it_has_failed() -> None:
    plan = Plan({model: ReplicaLimits(1, 1) for model in "xy"})
    seen = {"a": view("x", "y"), "b": view()}
    [task] = plan.decide(seen, 0)
    plan.finish(task, 1, has_failed=True)

    [other] = plan.decide(seen, 100)

    assert (Task(Action.LOAD, "b", "x"), Task(Action.LOAD, "b", "y")) == (task, other)


def test_a_load_that_has_failed_is_tried_elsewhere_and_later_again() -> None:
    plan = Plan({"m": ReplicaLimits(1, 1)})
    seen = {"a": view(), "b": view()}
    [task] = plan.decide(seen, 0)

    plan.finish(task, 0, has_failed=True)

    [elsewhere] = plan.decide(seen, 0)
    assert "b" == elsewhere.node
    plan.finish(elsewhere, 0, has_failed=True)
    assert [] == plan.decide(seen, 4)
    assert [task] == plan.decide(seen, 5)


def test_a_load_that_goes_on_to_fail_is_tried_seldom() -> None:
    plan = Plan({"m": ReplicaLimits(1, 1)})
    loads = []
    for second in range(3600):
        for task in plan.decide({"a": view(), "b": view()}, second):
            loads.append(task)
            plan.finish(task, second, has_failed=True)

    assert len(loads) <= 2 * 13, "at most seven in ten minutes, and then one in ten, on each node"


def test_what_is_left_of_a_load_that_has_failed_is_no_copy() -> None:
    plan = Plan({"m": ReplicaLimits(1, 1)})
    [task] = plan.decide({"a": view(), "b": view()}, 0)

    plan.finish(task, 0, has_failed=True)

    # servers go on to list what they could not load
    expected = {Task(Action.UNLOAD, "a", "m"), Task(Action.LOAD, "b", "m")}
    assert expected == set(plan.decide({"a": view(loading="m"), "b": view()}, 0))


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
            "v": ReplicaLimits(1, 1),
            "w": ReplicaLimits(1, 1),
            "x": ReplicaLimits(1, 1),
            "y": ReplicaLimits(2, 2),
            "z": ReplicaLimits(1, 4, up_after_s=3, down_after_s=30),
        }
        self.plan = Plan(self.limits)
        #: The models of each node, and whether they are ready.
        self.nodes: dict[str, dict[str, bool]] = {node: {} for node in "abcd"}
        self._tasks: list[tuple[float, Task]] = []
        self.now_s = 0.0
        self.are_loads_reliable = False

    def step(self, seconds: float = 0.5) -> None:
        self.now_s += seconds
        self._end_tasks()
        seen = self.seen()
        for task in self.plan.decide(seen, self.now_s):
            assert task.node not in {other.node for _, other in self._tasks}, "one task at a time"
            if task.action in (Action.DRAIN, Action.UNLOAD):
                self._assert_spare(task, seen)
            self._tasks.append((self.now_s + self._chance.uniform(0, 5), task))

    def _assert_spare(self, task: Task, seen: dict[str, NodeView]) -> None:
        is_ready = task.model in seen[task.node].ready
        assert is_ready == (task.action is Action.DRAIN), "nothing ready is unloaded"
        others = [n for n, v in seen.items() if task.model in v.ready and n != task.node]
        if is_ready:
            assert len(others) >= self.plan.counts()[task.model], "none is missed"

    def seen(self) -> dict[str, NodeView]:
        share = self._chance.choice([0, 1]) if not self.are_loads_reliable else 0
        load = ModelLoad(9 * share, 1, share)
        return {
            node: NodeView(
                frozenset(models),
                frozenset(model for model, is_ready in models.items() if is_ready),
                dict.fromkeys(models, load),
            )
            for node, models in self.nodes.items()
        }

    def disturb(self) -> None:
        node = self._chance.choice("abcd")
        if node not in self.nodes:
            self.nodes[node] = {}
        elif len(self.nodes) > 1 and self._chance.random() < 0.5:
            del self.nodes[node]

    def _end_tasks(self) -> None:
        due = [(end_s, task) for end_s, task in self._tasks if end_s <= self.now_s]
        for entry in due:
            self._tasks.remove(entry)
            task = entry[1]
            models = self.nodes.get(task.node, {})
            has_failed = not self.are_loads_reliable and self._chance.random() < 0.3
            if task.action in (Action.DRAIN, Action.UNDRAIN) and task.model not in models:
                has_failed = True
            if task.node not in self.nodes:
                has_failed = True
            elif task.action is Action.LOAD:
                models[task.model] = models.get(task.model, False) or not has_failed
            elif not has_failed and task.action is Action.UNLOAD:
                models.pop(task.model, None)
            elif not has_failed:
                models[task.model] = task.action is Action.UNDRAIN
            self.plan.finish(task, self.now_s, has_failed=has_failed)


@pytest.mark.parametrize("seed", range(12))
def test_a_fleet_is_whole_and_even_again_after_whatever_a_day_brings(seed: int) -> None:
    day = FleetDay(seed)
    chance = random.Random(seed)
    for _ in range(400):
        if chance.random() < 0.1:
            day.disturb()
        day.step()

    day.are_loads_reliable = True
    for node in "abcd":
        day.nodes.setdefault(node, {})
    for _ in range(500):
        day.step(8)

    assert day.plan.is_whole(day.seen())
    counts = {m: sum(m in models for models in day.nodes.values()) for m in day.limits}
    assert {"v": 1, "w": 1, "x": 1, "y": 2, "z": 1} == counts, "no more than there should be"
    assert all(all(models.values()) for models in day.nodes.values()), "all are ready"
    sizes = sorted(map(len, day.nodes.values()))
    assert sizes[-1] - sizes[0] <= 1, "and spread"
