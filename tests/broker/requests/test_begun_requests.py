"""The requests that a broker writes down for the next one."""

from __future__ import annotations

import pytest

from zmqtriton.broker.requests.begun_requests import BegunRequests


@pytest.fixture
def memory() -> bytearray:
    """Room for two requests."""
    return bytearray(72)


def begin(memory: bytearray) -> BegunRequests:
    begun = BegunRequests()
    begun.adopt(memory)
    return begun


def test_the_next_broker_reads_what_was_written_and_not_removed(memory: bytearray) -> None:
    first = begin(memory)
    place = first.add((1, 7))
    first.add((2, 7))
    first.remove(place)

    following = begin(memory)

    assert [False, True] == [following.had_begun((peer, 7)) for peer in (1, 2)]
    assert not first.had_begun((2, 7)), "its own requests are no earlier broker's"


def test_a_broker_after_the_next_one_reads_the_same(memory: bytearray) -> None:
    begin(memory).add((1, 7))
    begin(memory).add((1, 8))

    third = begin(memory)

    assert all(third.had_begun((1, own_id)) for own_id in (7, 8))


def test_places_are_used_again(memory: bytearray) -> None:
    begun = begin(memory)
    for own_id in range(1, 100):
        begun.remove(begun.add((1, own_id)))
    begun.add((1, 100))

    assert [own_id for own_id in range(102) if begin(memory).had_begun((1, own_id))] == [100]


def test_without_room_any_request_may_have_begun_until_those_have_their_answers(
    memory: bytearray,
) -> None:
    begun = begin(memory)
    places = [begun.add((1, own_id)) for own_id in range(1, 4)]

    assert begin(memory).had_begun((9, 9))
    begun.remove(places[2])
    assert not begin(memory).had_begun((9, 9))


def test_what_earlier_brokers_had_begun_is_forgotten_when_nobody_repeats_it(
    memory: bytearray,
) -> None:
    first = begin(memory)
    for own_id in range(1, 4):
        first.add((1, own_id))
    following = begin(memory)

    following.forget_earlier()

    assert not following.had_begun((1, 1))
    assert memory == bytearray(72)


def test_a_run_of_which_one_step_was_sent_has_begun_if_that_has(memory: bytearray) -> None:
    first = begin(memory)
    first.add((1, 7), 70)
    first.add((1, 8), 80)
    following = begin(memory)
    assert [70, 80] == [following.step_in_doubt((1, own_id)) for own_id in (7, 8)]
    assert not following.had_begun((1, 7))

    following.confirm_steps([70, 90])

    for broker in (following, begin(memory)):
        assert broker.had_begun((1, 7))
        assert not broker.had_begun((1, 8))
    following.forget((1, 8))
    assert 0 == begin(memory).step_in_doubt((1, 8))


def test_any_step_may_have_begun_if_nobody_can_say(memory: bytearray) -> None:
    begin(memory).add((1, 7), 70)
    following = begin(memory)

    following.confirm_steps(None)

    assert following.had_begun((1, 7))


def test_a_run_that_was_confirmed_is_not_in_doubt(memory: bytearray) -> None:
    first = begin(memory)

    first.confirm(first.add((1, 7), 70))

    assert begin(memory).had_begun((1, 7))
    assert 0 == begin(memory).step_in_doubt((1, 7))
