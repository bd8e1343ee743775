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


def test_a_condition_is_looked_at_at_the_end_of_each_event() -> None:
    open_ones, done, ready = {1, 2}, list[object](), Ready()

    async def story() -> None:
        done.append(await ready.until(lambda: not open_ones))
        done.append(await ready.until(lambda: "at once"))
        open_ones.add(3)
        done.append(await ready.until(lambda: not open_ones))

    Scope(ready).tell(story())
    ready.settle()
    open_ones.discard(1)
    ready.settle()
    assert done == []
    open_ones.discard(2)
    assert done == []
    ready.settle()
    assert done == [True, "at once"]
    open_ones.clear()
    ready.settle()
    assert done == [True, "at once", True]


def test_a_condition_that_another_story_ends_is_waited_for_again() -> None:
    free, done, ready = [1], list[str](), Ready()
    scope = Scope(ready)

    async def story(name: str) -> None:
        await ready.until(lambda: free)
        free.pop()
        done.append(name)

    free.clear()
    for name in "ab":
        scope.tell(story(name))
    free.append(1)
    ready.settle()
    assert done == ["a"]
    free.append(2)
    ready.settle()

    assert done == ["a", "b"]


def test_one_story_makes_the_condition_of_another_in_the_same_event() -> None:
    steps, done, ready = list[str](), list[str](), Ready()
    scope = Scope(ready)

    async def second() -> None:
        await ready.until(lambda: "first" in steps)
        done.append("second")

    async def first() -> None:
        await ready.until(lambda: "begin" in steps)
        steps.append("first")

    scope.tell(second())
    scope.tell(first())
    steps.append("begin")
    ready.settle()

    assert done == ["second"]


def test_a_condition_of_a_cancelled_story_is_asked_no_more() -> None:
    asked, ready = list[int](), Ready()
    scope = Scope(ready)

    async def story() -> None:
        await ready.until(lambda: asked.append(1))

    scope.tell(story())
    scope.cancel()
    asked.clear()
    ready.settle()

    assert asked == []


def test_a_condition_that_fails_fails_its_story_alone() -> None:
    values, done, ready = {"failing": 0, "other": 0}, list[str](), Ready()
    scope = Scope(ready)

    async def story(name: str) -> None:
        await ready.until(lambda: values[name])
        done.append(name)

    failing, _ = scope.tell(story("failing")), scope.tell(story("other"))
    del values["failing"]
    with pytest.raises(KeyError):
        ready.settle()
    values["other"] = 1
    ready.settle()

    assert failing.is_over
    assert done == ["other"]


def test_a_rule_goes_on_after_a_failure() -> None:
    found, done, ready = list[int](), list[int](), Ready()

    def act(numbers: list[int]) -> None:
        done.append(1 // numbers.pop())

    Scope(ready).whenever(lambda: found, act)
    found.append(0)
    with pytest.raises(ZeroDivisionError):
        ready.settle()
    found.append(1)
    ready.settle()
    found.append(1)
    ready.settle()

    assert done == [1, 1]
