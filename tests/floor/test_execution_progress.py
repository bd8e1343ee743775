"""A page that a stub and the broker share."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterable, Iterator
from functools import partial

import pytest

from zmqtriton_floor.execution_progress import EPOCH_SHIFT, SIZE, Progress, end

#: A small page, and how many requests each half of it has room for.
PAGE_BYTES = 1 << 18
ROOM = (PAGE_BYTES - 32) // 32


def test_what_a_killed_process_wrote_last_is_read_by_the_other() -> None:
    with tempfile.TemporaryFile() as page:
        page.truncate(SIZE)
        ours = Progress(page.fileno())
        assert 0 == ours.last_begun_batch

        pid = os.fork()
        if pid == 0:
            theirs = Progress(page.fileno())
            for number in (1, 2, 2**40):
                theirs.begin(number)
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)

        assert 2**40 == ours.last_begun_batch
        ours.close()


@pytest.fixture
def sides() -> Iterator[tuple[Progress, Progress]]:
    with tempfile.TemporaryFile() as page:
        page.truncate(PAGE_BYTES)
        sides = Progress(page.fileno()), Progress(page.fileno())
    yield sides
    for side in sides:
        side.close()


def test_requests_are_named_that_may_have_begun(sides: tuple[Progress, Progress]) -> None:
    stub, broker = sides
    assert not broker.may_have_begun((3, 1))

    assert stub.begin(7, [(3, 1), (2**63, 2**64 - 1)])

    assert broker.may_have_begun((3, 1))
    assert broker.may_have_begun((2**63, 2**64 - 1))
    assert not broker.may_have_begun((3, 2))


def _written(numbers: Iterable[int]) -> frozenset[tuple[int, int]]:
    return frozenset((3, number) for number in numbers)


def test_all_that_has_begun_and_may_be_repeated_is_named(sides: tuple[Progress, Progress]) -> None:
    stub, broker = sides
    lasting = [(3, number) for number in range(0, 2 * ROOM, 1000)]

    def unsettled(number: int) -> list[tuple[int, int]]:
        newest = range(max(0, number - ROOM // 2), number)
        return [*lasting, *((3, one) for one in newest)]

    for number in range(3 * ROOM):
        assert stub.begin(number + 1, [(3, number)], partial(unsettled, number))

        if number % 1009 == 0:
            begun = broker.begun_keys()
            assert begun is not None
            assert begun >= {key for key in unsettled(number + 1) if key[1] <= number}
            assert begun <= _written(range(number + 1)), "what waits here is not named"


def test_a_stub_that_dies_as_it_makes_room_has_named_all(
    sides: tuple[Progress, Progress],
) -> None:
    stub, broker = sides
    keys = [(3, number) for number in range(ROOM)]
    stub.begin(1, keys)
    seen = []

    def die() -> list[tuple[int, int]]:
        seen.append(broker.begun_keys())
        return keys[:5]

    stub.begin(2, [(3, ROOM)], die)

    assert seen == [frozenset(keys)]
    assert broker.begun_keys() == _written(range(ROOM + 1))
    stub.begin(3, [(5, number) for number in range(ROOM - 6)], lambda: [(3, 0), (3, ROOM)])
    begun = broker.begun_keys()
    assert begun is not None
    assert {(3, 0), (3, ROOM), (5, 0), (5, ROOM - 7)} <= begun
    assert (3, ROOM - 1) not in begun, "the half that was full is written anew"


def test_all_that_a_very_busy_stub_answers_in_a_second_is_named() -> None:
    with tempfile.TemporaryFile() as page:
        page.truncate(SIZE)
        stub, broker = Progress(page.fileno()), Progress(page.fileno())
    answered: list[tuple[int, int]] = []

    def unsettled() -> list[tuple[int, int]]:
        return answered

    for batch in range(1, 201):
        keys = [(3, 100 * batch + number) for number in range(100)]
        assert stub.begin(batch, keys, unsettled)
        answered.extend(keys)

    assert frozenset(answered) == broker.begun_keys()
    stub.close()
    broker.close()


def test_a_calm_stub_names_few_and_gathers_them_seldom(sides: tuple[Progress, Progress]) -> None:
    stub, broker = sides
    looks = []

    def newest(number: int) -> list[tuple[int, int]]:
        looks.append(number)
        return [(3, number - 1)]

    for number in range(2 * ROOM):
        stub.begin(number + 1, [(3, number)], partial(newest, number))

    begun = broker.begun_keys()
    assert begun is not None
    assert {(3, 2 * ROOM - 2), (3, 2 * ROOM - 1)} <= begun
    assert len(begun) < ROOM
    assert 0 < len(looks) < 10


def test_where_they_are_too_many_any_may_have_begun_until_they_are_fewer(
    sides: tuple[Progress, Progress],
) -> None:
    stub, broker = sides
    keys = [(3, number) for number in range(ROOM + 1)]

    stub.begin(7, keys[1:], lambda: keys)
    stub.begin(8, keys[:1], lambda: keys)
    assert broker.may_have_begun((4, 1))
    stub.begin(9, keys[1:], lambda: keys)
    assert broker.may_have_begun((4, 1))
    stub.begin(10, keys[2:], lambda: keys[1:2])
    assert broker.may_have_begun((4, 1)), "one more than when they were too many is looked for"
    stub.begin(11, keys[2:3], lambda: keys[1:2])

    assert not broker.may_have_begun((4, 1))
    assert broker.begun_keys() == frozenset(keys[1:3])


def test_behind_a_fence_no_batch_of_an_earlier_broker_is_begun(
    sides: tuple[Progress, Progress],
) -> None:
    stub, broker = sides
    assert stub.begin((1 << EPOCH_SHIFT) + 5)

    broker.fence(2)

    assert not stub.begin((1 << EPOCH_SHIFT) + 6, [(3, 1)])
    assert not broker.may_have_begun((3, 1))
    assert stub.begin((2 << EPOCH_SHIFT) + 1)
    assert stub.begin(0), "samples of the warm-up are nobody's"


def test_who_reads_an_overwritten_page_after_the_stub_finds_its_last_batch(
    sides: tuple[Progress, Progress],
) -> None:
    stub, broker = sides
    stub.begin(7, [(3, 1)])
    broker._page[:] = b"\xff" * PAGE_BYTES
    assert not stub.begin(8, [(3, 2)])
    assert not stub.has_ended

    stub.restore()

    assert 7 == broker.last_begun_batch
    assert broker.begun_keys() is None


def test_a_stub_whose_page_was_ended_knows(sides: tuple[Progress, Progress]) -> None:
    stub, _ = sides
    with tempfile.TemporaryFile() as page:
        page.truncate(SIZE)
        ended = Progress(page.fileno())
        end(page.fileno())

    assert ended.has_ended
    assert not stub.has_ended
    ended.close()
