"""Spans that wait for their exporter; times that are far away or over, so that nothing waits."""

from __future__ import annotations

import threading

from zmqtriton.tracing.backlog import Backlog

_NEVER_S = 3600.0


def test_a_full_message_is_taken_at_once_and_the_rest_waits() -> None:
    backlog = Backlog(10, 2, _NEVER_S)
    backlog.put("abcde")

    assert ["a", "b"] == backlog.take()
    assert ["c", "d"] == backlog.take()
    assert 1 == len(backlog)


def test_what_has_waited_long_enough_is_taken_though_it_is_little() -> None:
    backlog = Backlog(10, 2, 0.0)
    backlog.put("a")

    assert ["a"] == backlog.take()


def test_the_oldest_go_when_there_is_no_more_room() -> None:
    backlog = Backlog(3, 3, _NEVER_S)
    backlog.put("abcde")

    assert ["c", "d", "e"] == backlog.take()
    assert (2, 0) == (backlog.lost(), backlog.lost())


def test_what_could_not_be_sent_is_the_next_again_as_far_as_there_is_room() -> None:
    backlog = Backlog(4, 2, _NEVER_S)
    backlog.put("abc")
    taken = backlog.take()
    backlog.put("de")

    backlog.give_back(taken, 0.0)

    assert 1 == backlog.lost()
    assert ["b", "c"] == backlog.take()


def test_at_the_end_everything_is_taken_whatever_was_to_be_waited_for() -> None:
    backlog = Backlog(10, 2, _NEVER_S)
    backlog.put("abc")
    backlog.give_back(backlog.take(), _NEVER_S)

    backlog.end()

    assert [["a", "b"], ["c"], []] == [backlog.take() for _ in range(3)]


def test_who_waits_hears_of_what_comes() -> None:
    backlog = Backlog(10, 2, _NEVER_S)
    taken: list[list[str]] = []
    thread = threading.Thread(target=lambda: taken.append(backlog.take()))
    thread.start()

    backlog.put("a")
    backlog.put("b")
    thread.join(30)

    assert [["a", "b"]] == taken
