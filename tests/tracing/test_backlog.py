"""Spans that wait for their exporter; times that are far away or over, so that nothing waits."""

from __future__ import annotations

import threading

from zmqtriton.tracing.open_telemetry import SpanBacklog

_NEVER_S = 3600.0


def test_a_full_message_is_taken_at_once_and_the_rest_waits() -> None:
    backlog = SpanBacklog(10, 2, _NEVER_S)
    backlog.add("abcde")

    assert ["a", "b"] == backlog.take_batch()
    assert ["c", "d"] == backlog.take_batch()
    assert 1 == len(backlog)


def test_what_has_waited_long_enough_is_taken_though_it_is_little() -> None:
    backlog = SpanBacklog(10, 2, 0.0)
    backlog.add("a")

    assert ["a"] == backlog.take_batch()


def test_the_oldest_go_when_there_is_no_more_room() -> None:
    backlog = SpanBacklog(3, 3, _NEVER_S)
    backlog.add("abcde")

    assert ["c", "d", "e"] == backlog.take_batch()
    assert (2, 0) == (backlog.pop_lost_count(), backlog.pop_lost_count())


def test_what_could_not_be_sent_is_the_next_again_as_far_as_there_is_room() -> None:
    backlog = SpanBacklog(4, 2, _NEVER_S)
    backlog.add("abc")
    taken = backlog.take_batch()
    backlog.add("de")

    backlog.requeue(taken, 0.0)

    assert 1 == backlog.pop_lost_count()
    assert ["b", "c"] == backlog.take_batch()


def test_at_the_end_everything_is_taken_whatever_was_to_be_waited_for() -> None:
    backlog = SpanBacklog(10, 2, _NEVER_S)
    backlog.add("abc")
    backlog.requeue(backlog.take_batch(), _NEVER_S)

    backlog.close()

    assert [["a", "b"], ["c"], []] == [backlog.take_batch() for _ in range(3)]


def test_who_waits_hears_of_what_comes() -> None:
    backlog = SpanBacklog(10, 2, _NEVER_S)
    taken: list[list[str]] = []
    thread = threading.Thread(target=lambda: taken.append(backlog.take_batch()))
    thread.start()

    backlog.add("a")
    backlog.add("b")
    thread.join(30)

    assert [["a", "b"]] == taken
