"""The moments at which a place is told, on a clock that the test turns."""

from __future__ import annotations

import math

from zmqtriton_extras.fleet.announcing.announcer import (
    APART_S,
    FIRST_PAUSE_S,
    MAX_PAUSE_S,
    AnnouncementSchedule,
)

INTERVAL_S = 5.0


def succeeded_at(now_s: float) -> AnnouncementSchedule:
    schedule = AnnouncementSchedule(INTERVAL_S)
    schedule.has_changed()
    schedule.begin()
    schedule.succeeded(now_s)
    return schedule


def test_nothing_is_told_before_there_is_something_to_tell() -> None:
    assert math.inf == AnnouncementSchedule(INTERVAL_S).due_s()


def test_news_is_told_at_once() -> None:
    schedule = AnnouncementSchedule(INTERVAL_S)
    schedule.has_changed()

    assert schedule.due_s() <= 0.0


def test_without_news_it_is_told_again_after_the_interval() -> None:
    schedule = succeeded_at(100.0)

    assert schedule.due_s() == 100.0 + INTERVAL_S


def test_changes_soon_after_each_other_are_told_in_one() -> None:
    schedule = succeeded_at(100.0)

    schedule.has_changed()
    schedule.has_changed()

    assert schedule.due_s() == 100.0 + APART_S
    schedule.begin()
    schedule.succeeded(101.0)
    assert schedule.due_s() == 101.0 + INTERVAL_S, "nothing is left to tell"


def test_what_changes_while_a_place_is_told_is_news() -> None:
    schedule = AnnouncementSchedule(INTERVAL_S)
    schedule.has_changed()
    schedule.begin()
    schedule.has_changed()
    schedule.succeeded(100.0)

    assert schedule.due_s() == 100.0 + APART_S


def test_pauses_grow_while_a_place_fails_and_news_does_not_shorten_them() -> None:
    schedule, now_s, pauses = succeeded_at(100.0), 100.0, []
    for _ in range(8):
        schedule.begin()
        schedule.failed(now_s, chance=1.0)
        schedule.has_changed()
        pauses.append(schedule.due_s() - now_s)

    assert schedule.is_failing
    assert pauses[0] == FIRST_PAUSE_S
    assert sorted(pauses) == pauses
    assert pauses[-1] == MAX_PAUSE_S


def test_after_a_success_all_is_forgotten() -> None:
    schedule = succeeded_at(100.0)
    schedule.failed(105.0, chance=0.0)

    schedule.begin()
    schedule.succeeded(106.0)

    assert not schedule.is_failing
    assert schedule.due_s() == 106.0 + INTERVAL_S
