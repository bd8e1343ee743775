"""A page that a stub and the broker share."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator

import pytest

from zmqtriton_floor.progress import EPOCH_SHIFT, ROOM_FOR_KEYS, SIZE, Progress, end


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
        page.truncate(SIZE)
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


def test_where_they_are_too_many_any_may_have_begun(sides: tuple[Progress, Progress]) -> None:
    stub, broker = sides

    stub.begin(7)
    assert broker.may_have_begun((3, 1))
    stub.begin(8, [(3, 2)])

    assert not broker.may_have_begun((3, 1))


def test_a_stub_that_ends_names_as_many_as_the_page_has_room_for(
    sides: tuple[Progress, Progress],
) -> None:
    stub, broker = sides
    stub.begin(7)

    stub.finish([(3, number) for number in range(ROOM_FOR_KEYS)])

    assert broker.begun_keys() == frozenset((3, number) for number in range(ROOM_FOR_KEYS))
    stub.finish([(3, number) for number in range(ROOM_FOR_KEYS + 1)])
    assert broker.begun_keys() is None


def test_behind_a_fence_no_batch_of_an_earlier_broker_is_begun(
    sides: tuple[Progress, Progress],
) -> None:
    stub, broker = sides
    assert stub.begin((1 << EPOCH_SHIFT) + 5)

    broker.fence(2)

    assert not stub.begin((1 << EPOCH_SHIFT) + 6)
    assert stub.begin((2 << EPOCH_SHIFT) + 1)
    assert stub.begin(0), "samples of the warm-up are nobody's"


def test_who_reads_an_overwritten_page_after_the_stub_finds_its_last_batch(
    sides: tuple[Progress, Progress],
) -> None:
    stub, broker = sides
    stub.begin(7, [(3, 1)])
    broker._page[:] = b"\xff" * SIZE
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
