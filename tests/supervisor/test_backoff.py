"""When what has died is started again, and when it is given up."""

from __future__ import annotations

from zmqtriton.supervisor.backoff import (
    MAX_DEATHS,
    MAX_PAUSE_S,
    MAX_QUICK_RESTARTS,
    WINDOW_S,
    Backoff,
)


def test_the_first_restart_is_at_once_and_each_next_one_twice_as_late() -> None:
    backoff = Backoff()
    pauses = []

    for now_s in range(5):
        backoff.record_death(now_s)
        pauses.append(backoff.pause_s)

    assert [0.0, 0.2, 0.4, 0.8, 1.6] == pauses
    assert not backoff.is_exhausted


def test_too_many_fruitless_deaths_in_a_minute_are_the_end() -> None:
    backoff = Backoff()

    for now_s in range(MAX_DEATHS + 1):
        backoff.record_death(now_s)

    assert backoff.is_exhausted


def test_old_deaths_do_not_count() -> None:
    backoff = Backoff()

    for number in range(20):
        backoff.record_death(number * WINDOW_S)

    assert 1 == backoff.consecutive_deaths
    assert 0.0 == backoff.pause_s


def test_what_had_worked_is_restarted_at_once_time_after_time() -> None:
    backoff = Backoff()

    for number in range(MAX_QUICK_RESTARTS):
        backoff.record_death(number * 1.5, had_worked=True)
        assert 0.0 == backoff.pause_s
    assert not backoff.is_exhausted


def test_restarts_that_are_all_that_happens_get_rarer_and_never_end() -> None:
    backoff = Backoff()

    for number in range(MAX_QUICK_RESTARTS + 20):
        backoff.record_death(number * 0.3, had_worked=True)

    assert MAX_PAUSE_S == backoff.pause_s
    assert not backoff.is_exhausted
