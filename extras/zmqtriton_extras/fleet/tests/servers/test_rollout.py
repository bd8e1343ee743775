"""A rollout, played through without servers."""

from __future__ import annotations

import itertools

import pytest

from zmqtriton_extras.fleet.servers.nodes import Node
from zmqtriton_extras.fleet.servers.rolling import Action, Outcome, Rollout, roll

A, B, C = (Node(f"{name}:8000") for name in "abc")


def play(*, drains: bool, fails: tuple[Action, Node] | None = None) -> tuple[list[str], Rollout]:
    """The steps that were taken, where one of them fails; and the end."""
    taken = []

    def take(action: Action, node: Node) -> str:
        taken.append(f"{action.name.lower()} {node.name[0]}")
        return "it fails" if (action, node) == fails else ""

    return taken, roll([A, B, C], take, drains=drains)


def test_each_server_is_ready_before_the_next_one_is_touched() -> None:
    taken, plan = play(drains=False)

    expected = [f"{action} {name}" for name in "abc" for action in ("load", "await")]
    assert expected == taken
    assert {Outcome.NEW} == set(plan.outcomes.values())
    assert plan.reason == ""


def test_a_server_is_drained_before_and_undrained_after_its_load() -> None:
    taken, _ = play(drains=True)

    assert taken[:4] == ["drain a", "load a", "undrain a", "await a"]


@pytest.mark.parametrize(
    ("action", "outcome", "last"),
    [
        (Action.LOAD, Outcome.REFUSED, "load b"),
        (Action.AWAIT, Outcome.UNREADY, "await b"),
    ],
)
def test_the_first_failure_ends_it(action: Action, outcome: Outcome, last: str) -> None:
    taken, plan = play(drains=False, fails=(action, B))

    assert last == taken[-1]
    assert {A: Outcome.NEW, B: outcome, C: Outcome.OLD} == plan.outcomes
    assert plan.reason == "it fails"


@pytest.mark.parametrize(
    ("action", "outcome"), [(Action.DRAIN, Outcome.OLD), (Action.LOAD, Outcome.REFUSED)]
)
def test_a_server_that_goes_on_with_the_old_version_is_undrained(
    action: Action, outcome: Outcome
) -> None:
    taken, plan = play(drains=True, fails=(action, B))

    assert [f"{action.name.lower()} b", "undrain b"] == taken[-2:]
    assert {A: Outcome.NEW, B: outcome, C: Outcome.OLD} == plan.outcomes


def test_a_server_that_cannot_be_undrained_is_named() -> None:
    taken, plan = play(drains=True, fails=(Action.UNDRAIN, B))

    assert taken[-1] == "undrain b"
    assert plan.outcomes[B] == Outcome.DRAINED


def test_whatever_fails_no_server_is_touched_after_it() -> None:
    for drains, action, node in itertools.product((False, True), Action, (A, B, C)):
        taken, plan = play(drains=drains, fails=(action, node))
        if not plan.reason:
            continue  # it has no such step
        touched = {step.split()[1] for step in taken}
        assert set("abc"[: [A, B, C].index(node) + 1]) == touched
        drained = [step for step in taken if step.startswith("drain")]
        undrained = [step for step in taken if step.startswith("undrain")]
        assert len(drained) == len(undrained), "nothing stays drained unless that has failed"


def test_after_a_failure_it_says_how_to_go_on_and_back() -> None:
    _, plan = play(drains=False, fails=(Action.LOAD, B))

    assert plan.next_steps("m") == [
        "to go on, mend the model, then: zmqtriton-ctl fleet --on b:8000 --on c:8000 rollout m",
        "to go back, restore its files, then: zmqtriton-ctl fleet --on a:8000 rollout m",
    ]


def test_the_first_server_of_all_has_nothing_to_go_back_to() -> None:
    _, plan = play(drains=False, fails=(Action.LOAD, A))

    [only] = plan.next_steps("m")
    assert only.endswith("--on a:8000 --on b:8000 --on c:8000 rollout m")


def test_one_that_is_still_drained_is_undrained_by_hand() -> None:
    _, plan = play(drains=True, fails=(Action.UNDRAIN, A))

    assert "to end the drain: zmqtriton-ctl fleet --on a:8000 undrain m" in plan.next_steps("m")
