"""Stories: where they go on, and what ends them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from zmqtriton.supervisor.story import All, Promise, Ready, Scope


class Teller:
    """A story of two outcomes, and what it has done."""

    def __init__(self) -> None:
        self.first = Promise[str]()
        self.second = Promise[str]()
        self.done: list[str] = []
        self.ready = Ready()
        self.scope = Scope(self.ready)
        self.in_between: Callable[[], None] = lambda: None

    async def tell(self) -> None:
        try:
            self.done.append(await self.first)
            self.in_between()
            self.done.append(await self.second)
        finally:
            self.done.append("over")

    def begin(self) -> Teller:
        self.scope.tell(self.tell())
        return self


def test_only_the_first_value_counts() -> None:
    teller = Teller().begin()
    teller.first("a")
    teller.first("x")
    teller.ready.settle()

    assert teller.done == ["a"]


def test_one_goes_on_at_the_end_of_the_event_and_not_inside_the_call() -> None:
    teller = Teller().begin()

    teller.first("a")
    assert teller.done == []
    teller.second("b")
    assert teller.done == []

    teller.ready.settle()
    assert teller.done == ["a", "b", "over"]


def test_one_that_cancels_itself_ends_where_it_waits_next() -> None:
    teller = Teller().begin()
    teller.in_between = teller.scope.cancel

    teller.first("a")
    teller.ready.settle()

    assert teller.done == ["a", "over"]
    teller.scope.cancel()
    teller.second("b")
    teller.ready.settle()
    assert teller.done == ["a", "over"]


def test_one_that_is_cancelled_when_it_could_go_on_does_not() -> None:
    teller = Teller().begin()
    teller.first("a")
    teller.scope.cancel()
    teller.ready.settle()

    assert teller.done == ["over"]


def test_an_error_leaves_the_other_stories_as_they_are() -> None:
    teller = Teller().begin()
    teller.in_between = lambda: [][0]
    done: list[str] = []

    async def other() -> None:
        done.append(await teller.first)

    teller.scope.tell(other())
    teller.first("a")
    with pytest.raises(IndexError):
        teller.ready.settle()
    assert (teller.done, done) == (["a", "over"], [])
    teller.ready.settle()

    assert done == ["a"]


@pytest.mark.parametrize(("pick", "order"), [(None, "abc"), (lambda count: -1, "cba")])
def test_the_order_of_what_is_ready_can_be_chosen(
    pick: Callable[[int], int] | None, order: str
) -> None:
    begin, ready, done = Promise[None](), Ready(), list[str]()
    ready.pick = pick
    scope = Scope(ready)

    async def story(name: str) -> None:
        await begin
        done.append(name)

    stories = [scope.tell(story(name)) for name in "abc"]
    ended = All(stories)
    begin()
    assert not ended.is_over
    ready.settle()

    assert "".join(done) == order
    assert ended.is_over


class Waiting:
    """Stories that wait for facts, by their names."""

    def __init__(self, *facts: str) -> None:
        self.facts, self.done = dict.fromkeys(facts, False), list[str]()
        self.ready = Ready()
        self.scope = Scope(self.ready)

    def begin(self, fact: str, act: Callable[[], None] = lambda: None) -> Promise[None]:
        return self.scope.tell(self._wait(fact, act))

    async def _wait(self, fact: str, act: Callable[[], None]) -> None:
        await self.ready.until(lambda: self.facts[fact])
        self.done.append(fact)
        act()


def test_conditions_are_looked_at_until_no_story_goes_on_in_this_event() -> None:
    waiting = Waiting("first", "second")
    waiting.begin("second")
    waiting.begin("first", lambda: waiting.facts.update(second=True))
    waiting.ready.settle()
    waiting.facts["first"] = True
    assert waiting.done == []

    waiting.ready.settle()

    assert waiting.done == ["first", "second"]


def test_a_condition_that_another_story_ends_is_waited_for_again() -> None:
    waiting = Waiting("free")
    for _ in range(2):
        waiting.begin("free", lambda: waiting.facts.update(free=False))
    for count in (1, 2):
        waiting.facts["free"] = True
        waiting.ready.settle()
        assert waiting.done == ["free"] * count


def test_a_condition_of_a_cancelled_story_is_asked_no_more() -> None:
    ready, asked = Ready(), list[int]()
    scope = Scope(ready)
    scope.tell(ready.until(lambda: asked.append(1)))
    scope.cancel()
    asked.clear()

    ready.settle()

    assert asked == []


def test_a_condition_that_fails_fails_its_story_alone() -> None:
    waiting = Waiting("failing", "other")
    failing, _ = waiting.begin("failing"), waiting.begin("other")
    del waiting.facts["failing"]
    with pytest.raises(KeyError):
        waiting.ready.settle()
    waiting.facts["other"] = True
    waiting.ready.settle()

    assert failing.error is not None
    assert waiting.done == ["other"]


def test_a_rule_goes_on_after_a_failure() -> None:
    found, done, ready = list[int](), list[int](), Ready()
    Scope(ready).whenever(lambda: found, lambda numbers: done.append(1 // numbers.pop()))
    found.append(0)
    with pytest.raises(ZeroDivisionError):
        ready.settle()
    for _ in range(2):
        found.append(1)
        ready.settle()

    assert done == [1, 1]
