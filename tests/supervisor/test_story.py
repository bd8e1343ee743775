"""Stories: where they go on, and what ends them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from zmqtriton.supervisor.story import All, Change, Promise, Ready, Scope


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

    assert teller.ready.settle()
    assert teller.done == ["a", "b", "over"]
    assert not teller.ready.settle()


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


@pytest.mark.parametrize(("pick", "order"), [(lambda _: 0, "abc"), (lambda count: -1, "cba")])
def test_the_order_of_what_is_ready_can_be_chosen(pick: Callable[[int], int], order: str) -> None:
    begin, ready, done = Promise[None](), Ready(pick), list[str]()
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


def test_a_condition_is_looked_at_when_something_has_changed() -> None:
    open_ones, change, done = {1, 2}, Change(), list[str]()
    ready = Ready()

    def changes() -> None:
        change()
        ready.settle()

    async def story() -> None:
        await change.until(lambda: not open_ones)
        done.append("first")
        await change.until(lambda: not open_ones)
        done.append("second")
        open_ones.add(3)
        await change.until(lambda: not open_ones)
        done.append("third")

    Scope(ready).tell(story())
    changes()
    open_ones.discard(1)
    changes()
    assert done == []
    open_ones.discard(2)
    assert done == []
    changes()
    assert done == ["first", "second"]
    open_ones.clear()
    changes()
    changes()
    assert done == ["first", "second", "third"]


def test_a_condition_that_is_so_no_more_is_waited_for_again() -> None:
    open_ones, change, done, ready = {1}, Change(), list[str](), Ready()

    async def story() -> None:
        await change.until(lambda: not open_ones)
        done.append("over")

    Scope(ready).tell(story())
    open_ones.clear()
    change()
    open_ones.add(2)
    ready.settle()
    assert done == []
    open_ones.clear()
    change()
    ready.settle()

    assert done == ["over"]
