"""The servers that a proxy knows, as announcements come, stay away and lie."""

from __future__ import annotations

import random

import pytest

from zmqtriton_extras.fleet.servers.membership import MISSES, Membership
from zmqtriton_extras.fleet.servers.nodes import Node


def node(http: str, at_s: float = 1.0, *, started_s: float = 1.0, state: str = "ready") -> Node:
    return Node(http, state=state, order=(started_s, at_s))


def names(nodes: list[Node]) -> list[str]:
    return [each.http for each in nodes]


def test_a_server_that_is_not_named_any_more_is_asked_and_stays_if_it_answers() -> None:
    membership = Membership()
    membership.hear([node("a:1"), node("b:1")])
    assert membership.doubted == []

    for _ in range(10 * MISSES):
        membership.hear([node("b:1", 2.0)])
        assert names(membership.doubted) == ["a:1"]
        membership.judge("a:1", answers=True)

    assert names(membership.nodes) == ["a:1", "b:1"]


def test_it_is_forgotten_when_it_has_not_answered_several_times_in_a_row() -> None:
    membership = Membership()
    membership.hear([node("a:1")])
    for answers in [False] * (MISSES - 1) + [True] + [False] * (MISSES - 1):
        membership.hear([])
        membership.judge("a:1", answers=answers)
    assert names(membership.nodes) == ["a:1"], "it is busy"

    membership.hear([])
    membership.judge("a:1", answers=False)

    assert [] == membership.nodes == membership.doubted


def test_one_that_is_called_gone_is_asked_too() -> None:
    membership = Membership()
    membership.hear([node("a:1"), node("b:1")])

    membership.hear([node("a:1", state="stale"), node("b:1", state="ended")])

    assert names(membership.doubted) == ["a:1", "b:1"]
    assert [each.state for each in membership.nodes] == ["ready", "ready"], "as they were"


def test_one_that_was_never_there_is_not_taken_in_before_clients_can_connect() -> None:
    membership = Membership()
    membership.hear([node("a:1", state="starting"), node("b:1", state="ended")])
    assert membership.nodes == []

    membership.hear([node("a:1", 2.0)])
    assert names(membership.nodes) == ["a:1"]
    membership.hear([node("a:1", 1.0, started_s=2.0, state="starting")])
    assert names(membership.nodes) == ["a:1"], "it was started again, and is probed"


def test_an_older_word_changes_nothing() -> None:
    membership = Membership()
    newest = node("a:1", 5.0, started_s=2.0)
    membership.hear([newest])

    membership.hear([node("a:1", 9.0, started_s=1.0)])

    assert [newest] == membership.nodes
    assert names(membership.doubted) == ["a:1"], "an older run says nothing of this one"


def test_those_of_an_earlier_run_of_the_follower_are_asked() -> None:
    membership = Membership([node("a:1")])

    assert names(membership.doubted) == ["a:1"]


def serving(*models: str, ready: tuple[str, ...], run: float = 1.0, at_s: float = 1.0) -> Node:
    return Node("a:1", models=models, ready=frozenset(ready), state="ready", order=(run, at_s))


def listed(membership: Membership) -> tuple[str, ...] | None:
    [only] = membership.nodes
    return only.models


def test_a_model_is_listed_once_it_is_ready_and_for_as_long_as_it_should_be_there() -> None:
    membership = Membership()
    membership.hear([serving("m", "n", ready=("m",))])
    assert listed(membership) == ("m",), "n still loads"
    membership.hear([serving("m", "n", ready=("n",), at_s=2.0)])
    assert listed(membership) == ("m", "n"), "m drains, and the proxy sees that"
    membership.hear([serving("n", ready=("n",), at_s=3.0)])
    assert listed(membership) == ("n",)

    membership.hear([serving("m", "n", ready=(), run=2.0)])
    assert listed(membership) == (), "another run loads them anew"


@pytest.mark.slow
def test_whatever_is_said_nobody_who_answers_is_forgotten() -> None:
    chance = random.Random(39)
    for _ in range(200):
        membership = Membership()
        alive = {f"{name}:1" for name in "abcdef"}
        at_s = 0.0
        membership.hear([node(each) for each in alive])
        for _ in range(40):
            at_s += 1.0
            said = [each for each in sorted(alive) if chance.random() < 0.5]
            states = ["ready", "stale", "ended", "draining", "starting"]
            membership.hear([node(each, at_s, state=chance.choice(states)) for each in said])
            for doubted in membership.doubted:
                membership.judge(doubted.http, answers=True)
        assert alive == set(names(membership.nodes))
