"""Stories: where they go on, and what ends them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from zmqtriton.supervisor.story import Change, Promise, Story, tell


class Teller:
    """A story of two outcomes, and what it has done."""

    def __init__(self) -> None:
        self.first = Promise[str]()
        self.second = Promise[str]()
        self.done: list[str] = []
        self.story = Story[None]()
        self.in_between: Callable[[], None] = lambda: None

    async def tell(self) -> None:
        try:
            self.done.append(await self.first)
            self.in_between()
            self.done.append(await self.second)
        finally:
            self.done.append("over")

    def begin(self) -> Teller:
        self.story.begin(self.tell())
        return self


def test_only_the_first_value_counts() -> None:
    teller = Teller().begin()
    teller.first("a")
    teller.first("x")

    assert teller.done == ["a"]


def test_one_that_cancels_itself_ends_where_it_waits_next() -> None:
    teller = Teller().begin()
    teller.in_between = teller.story.cancel

    teller.first("a")

    assert teller.done == ["a", "over"]
    teller.story.cancel()
    teller.second("b")
    assert teller.done == ["a", "over"]


def test_an_error_reaches_whoever_brings_the_value() -> None:
    teller = Teller().begin()
    teller.in_between = lambda: [][0]

    with pytest.raises(IndexError):
        teller.first("a")

    assert teller.done == ["a", "over"]


def test_a_condition_is_looked_at_when_something_has_changed() -> None:
    open_ones, change, done = {1, 2}, Change(), list[str]()

    async def story() -> None:
        await change.until(lambda: not open_ones)
        done.append("first")
        await change.until(lambda: not open_ones)
        done.append("second")
        open_ones.add(3)
        await change.until(lambda: not open_ones)
        done.append("third")

    tell(story())
    change()
    open_ones.discard(1)
    change()
    assert done == []
    open_ones.discard(2)
    assert done == []
    change()
    assert done == ["first", "second"]
    open_ones.clear()
    change()
    change()
    assert done == ["first", "second", "third"]
