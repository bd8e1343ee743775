"""One drain: when it has drained, and what may happen in each phase."""

from __future__ import annotations

from typing import Any

import pytest

from tests.supervisor.features.core_parts import core_parts
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_standard.draining.targets import (
    DRAIN_TRANSITIONS,
    Drain,
    DrainEvent,
    DrainPhase,
    DrainWish,
    Follow,
    ServerTarget,
)


@pytest.mark.row("L14")
def test_it_has_drained_when_nothing_is_under_way_and_nobody_came_for_a_while() -> None:
    drain = Drain(DrainWish(quiet_s=1.0), 10.0)

    drain.observe(2, 10.0, 10.5)
    drain.observe(0, 10.6, 10.8)

    assert not drain.has_drained(11.5)
    assert drain.has_drained(11.6)
    assert not drain.is_late


def test_it_waits_for_who_comes_all_the_same() -> None:
    drain = Drain(DrainWish(quiet_s=1.0), 10.0)
    drain.observe(0, 0.0, 10.9)

    drain.observe(0, 10.95, 11.2)

    assert not drain.has_drained(11.2)


def test_as_long_as_nobody_can_count_something_may_be_under_way() -> None:
    drain = Drain(DrainWish(quiet_s=1.0), 10.0)

    drain.observe(*ServerTarget(core_parts()).count(None), 20.0)

    assert not drain.has_drained(100.0)


def test_the_time_is_over_whatever_is_under_way() -> None:
    drain = Drain(DrainWish(within_s=5.0), 10.0)
    drain.observe(3, 12.0, 12.0)

    assert not drain.has_drained(14.9)
    assert drain.has_drained(15.0)
    assert drain.is_late


def test_another_wish_begins_anew() -> None:
    drain = Drain(DrainWish(within_s=5.0), 10.0)
    drain.handle(DrainEvent.HELD)

    drain.begin_again(DrainWish(Follow.UNLOAD, within_s=2.0), 20.0)
    drain.observe(1, 20.0, 21.0)

    assert DrainPhase.DRAINING is drain.phase
    assert not drain.has_drained(21.0)
    assert drain.has_drained(22.0)


def test_what_follows_cannot_be_called_back() -> None:
    left = {event for phase, event in DRAIN_TRANSITIONS if phase is DrainPhase.ENDING}

    assert {DrainEvent.ENDED} == left


@pytest.mark.parametrize(
    "arguments",
    [
        {"then": "stop"},
        {"then": 1},
        {"within_s": -1},
        {"within_s": "5"},
        {"quiet_s": True},
        {"within_s": 86_401},
        {"quiet_s": None},
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        DrainWish.parse(arguments, (Follow.NOTHING, Follow.UNLOAD))


@pytest.mark.parametrize("seconds", [0, 0.25, 86_400])
def test_times_are_seconds_and_their_parts_up_to_a_day(seconds: float) -> None:
    arguments = {"then": "unload", "within_s": seconds, "quiet_s": seconds}

    wish = DrainWish.parse(arguments, (Follow.NOTHING, Follow.UNLOAD))

    assert DrainWish(Follow.UNLOAD, seconds, seconds) == wish


def test_without_a_time_a_drain_lasts_as_long_as_it_takes() -> None:
    assert DrainWish(Follow.NOTHING, None, 1.0) == DrainWish.parse({}, (Follow.NOTHING,))
