"""The arena's book-keeping and its limits."""

from __future__ import annotations

import errno
import itertools
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.machines import forbidden_calls
from tests.support.segments import allocate, segment
from zmqtriton_floor import wire
from zmqtriton_floor.arena import (
    LARGE_BYTES,
    PAGE,
    Allocation,
    Arena,
    block_bytes,
)
from zmqtriton_floor.errors import Unavailable


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def arena(clock: Clock) -> Arena:
    return Arena(7, clock=clock)


def test_what_went_out_before_is_free_when_all_have_told_and_nobody_has_it(arena: Arena) -> None:
    lost, read, own = (allocate(arena, 50_000).reference.block for _ in range(3))
    arena.leases.send([lost, read])

    arena.doubt_leases()
    arena.leases.lend([read])
    assert 3 == arena.used

    arena.leases.end_doubted()
    assert 2 == arena.used
    arena.leases.take_back([read])
    assert 1 == arena.used
    arena.leases.end([own])
    assert 0 == arena.used


def test_of_two_readers_before_and_one_after_one_is_waited_for(arena: Arena) -> None:
    block = allocate(arena, 50_000).reference.block
    arena.leases.send([block])
    arena.leases.lend([block])

    # The second one lets go before all have told.
    arena.doubt_leases()
    arena.leases.lend([block, block])
    arena.leases.take_back([block])
    arena.leases.end_doubted()

    assert 1 == arena.used
    arena.leases.take_back([block])
    assert 0 == arena.used


def test_the_end_of_a_call_waits_for_leases_that_its_reply_has_led_to(arena: Arena) -> None:
    block, other = (allocate(arena, 50_000).reference.block for _ in range(2))
    arena.leases.send([other])
    arena.leases.take_leases([other])

    # The reply comes by one connection, and the lease of who reads on by another one, later.
    arena.leases.end([block], after=2)
    assert 2 == arena.used
    arena.leases.take_leases([block])
    assert 2 == arena.used

    arena.leases.take_back([block])
    assert 1 == arena.used


def test_a_lease_of_a_block_that_is_free_counts_as_taken(arena: Arena) -> None:
    free, block = (allocate(arena, 50_000).reference.block for _ in range(2))
    arena.leases.end([free])
    arena.leases.end([block], after=1)
    assert 1 == arena.used

    arena.leases.take_leases([free])

    assert 0 == arena.used


def test_an_end_that_has_waited_says_nothing_of_the_readers(arena: Arena) -> None:
    block = allocate(arena, 50_000).reference.block
    arena.leases.end([block], after=1)
    arena.leases.take_leases([block])

    arena.doubt_leases()
    arena.leases.lend([block])  # the one who reads it
    arena.leases.end_doubted()

    assert 1 == arena.used


def test_the_next_broker_counts_its_leases_from_the_beginning(arena: Arena) -> None:
    block = allocate(arena, 50_000).reference.block
    arena.leases.take_leases([block, block])
    arena.doubt_leases()

    arena.leases.end([block], after=1)
    arena.leases.end_doubted()
    assert 1 == arena.used
    arena.leases.take_leases([block])
    arena.leases.take_back([block])

    assert 0 == arena.used


def test_a_large_segment_serves_a_tensor_of_about_its_size_again(arena: Arena) -> None:
    first = allocate(arena, 16 << 20).reference
    arena.leases.end([first.block])

    # it would take the room that only a larger one needs
    assert first.segment != allocate(arena, 8 << 20).reference.segment
    assert first.segment == allocate(arena, 15 << 20).reference.segment


@pytest.mark.row("B21")
def test_full_memory_is_an_error_and_no_crash(arena: Arena) -> None:
    request = arena.segment_request(100_000)
    too_small = os.open("/dev/null", os.O_RDWR)  # has no pages to reserve

    with pytest.raises(Unavailable, match="Failed to increase the shared memory pool size to"):
        arena.add(request, too_small)

    with pytest.raises(OSError, match="Bad file"):
        os.fstat(too_small)


#: A file of ten pages, of which the second and the third have content, gets memory but for one.
_POPULATE = """
import os, sys
from zmqtriton_floor.arena import PAGE, populate
with open(sys.argv[1], "w+b") as file:
    file.truncate(10 * PAGE)
    os.pwrite(file.fileno(), b"x" * PAGE, PAGE + 100)
    populate(file.fileno(), 10, 9 * PAGE - 10)
    print(os.fstat(file.fileno()).st_blocks * 512 // PAGE)
"""


@pytest.mark.slow
@pytest.mark.parametrize("error", ["ENOSYS", "EPERM"])
def test_memory_is_made_also_where_a_container_forbids_the_call(tmp_path: Path, error: str) -> None:
    file = tmp_path / "file"
    command = [*forbidden_calls.without(error, "fallocate"), sys.executable, "-c", _POPULATE]

    assert 9 == int(subprocess.check_output([*command, str(file)], timeout=60))
    assert (bytes(PAGE + 100) + b"x" * PAGE).ljust(10 * PAGE, b"\0") == file.read_bytes()


@pytest.mark.row("B21")
def test_a_refusal_names_the_size_that_it_would_have_had(arena: Arena) -> None:
    allocate(arena, 100_000)

    assert (
        f"Failed to increase the shared memory pool size to {(1 << 20) + 5_242_880} bytes. "
        "There is none."
    ) == arena.refuse(arena.segment_request(5_000_000), "There is none.").text


def gradual(clock: Clock, size: int) -> tuple[Arena, Allocation, int]:
    """An arena with a block whose memory is not made yet, and another descriptor of its segment."""
    arena = Arena(7, is_gradual=True, clock=clock)
    request = arena.segment_request(size)
    descriptor = segment(request.size)
    other = os.dup(descriptor)
    assert request.is_gradual
    arena.add(request, descriptor)
    allocation = arena.allocate(size)
    assert allocation is not None
    return arena, allocation, other


def made_bytes(descriptor: int) -> int:
    return os.fstat(descriptor).st_blocks * 512


@pytest.mark.slow
def test_the_memory_of_a_gradual_segment_is_made_as_far_as_it_is_needed(clock: Clock) -> None:
    before = len(os.listdir("/proc/self/fd"))
    arena, allocation, other = gradual(clock, 64 << 20)
    block = allocation.reference.block
    assert 0 == made_bytes(other)

    arena.make(block, 100_000)
    arena.make(block, 1)
    assert 25 * PAGE == made_bytes(other)
    arena.make(block, 5 << 20)
    assert 5 << 20 == made_bytes(other)
    arena.make(block, 64 << 20)

    assert 64 << 20 == made_bytes(other)
    with pytest.raises(PermissionError):
        os.write(other, b"x")
    os.close(other)
    arena.leases.end([block])
    arena.trim(0)
    del allocation
    assert before == len(os.listdir("/proc/self/fd"))


def test_memory_that_is_short_when_it_is_to_be_made_is_an_error(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena, allocation, other = gradual(clock, 64 << 20)

    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)

    with pytest.raises(Unavailable, match="No space left on device"):
        arena.make(allocation.reference.block, 1)
    os.close(other)


def test_only_large_segments_are_gradual(clock: Clock) -> None:
    arena = Arena(7, is_gradual=True, clock=clock)

    request = arena.segment_request(LARGE_BYTES)

    assert not request.is_gradual
    descriptor = segment(request.size)
    other = os.dup(descriptor)
    arena.add(request, descriptor)
    assert request.size == made_bytes(other), "full memory would kill who writes into it"
    os.close(other)
    allocation = arena.allocate(LARGE_BYTES)
    assert allocation is not None
    arena.make(allocation.reference.block, LARGE_BYTES)


def test_a_block_that_is_abandoned_takes_a_segment_made_for_it_along(clock: Clock) -> None:
    arena, allocation, other = gradual(clock, 64 << 20)
    arena.make(allocation.reference.block, 5 << 20)
    small = allocate(arena, 1000)
    pages = arena.segments[1].pages
    assert pages is not None

    assert [wire.FreeSegment(1)] == arena.abandon(allocation.reference.block)
    assert ([], []) == (arena.abandon(small.reference.block), arena.abandon(small.reference.block))

    assert ([2], 0) == (list(arena.segments), arena.used)
    # its descriptor, which was kept to make the rest, is closed
    with pytest.raises(OSError, match="Bad file"):
        pages.make(64 << 20)
    os.close(other)


def test_a_view_of_the_arena_is_recognised(arena: Arena) -> None:
    allocate(arena, 1000)
    allocation = allocate(arena, 100_000)

    assert arena.locate(allocation.view[1000:3000]) == allocation.reference._replace(
        offset=allocation.reference.offset + 1000, size=2000
    )
    assert arena.locate(memoryview(b"x" * 100)) is None


def test_a_destructor_amid_an_allocation_gets_nothing_and_breaks_nothing(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocate(arena, 1000)
    apply = arena.leases.apply
    within: list[Allocation | None] = []

    class Clumsy:
        def __del__(self) -> None:
            within.append(arena.allocate(1000))

    def apply_while_garbage_is_collected() -> list[int]:
        Clumsy()
        return apply()

    monkeypatch.setattr(arena.leases, "apply", apply_while_garbage_is_collected)
    assert arena.allocate(1000) is not None

    assert [None] == within


def test_threads_share_it(arena: Arena) -> None:
    allocate(arena, 1_000_000)
    arena.leases.end([1])

    def use(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(300):
            allocation = arena.allocate(chance.randrange(1, 60_000))
            if allocation is not None:
                allocation.view[:1] = b"x"
                arena.leases.end([allocation.reference.block])

    with ThreadPoolExecutor(4) as threads:
        for seed in range(4):
            threads.submit(use, seed)

    assert (0, 0) == (arena.used, allocate(arena, 1_000_000).reference.offset)


@given(st.integers(0, 1 << 40))
def test_a_block_wastes_little(size: int) -> None:
    room = block_bytes(size)

    assert 0 == room % PAGE
    assert size <= room <= max(PAGE, size + size // 8 + PAGE)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 700_000)), max_size=80))
def test_whatever_is_taken_and_freed_all_of_it_comes_back(steps: list[tuple[int, int]]) -> None:
    arena, held = Arena(1), list[Allocation]()
    for choice, size in steps:
        if held and choice < 15:
            arena.leases.end([held.pop(choice % len(held)).reference.block])
        else:
            held.append(allocate(arena, size))
        spans = sorted(
            (
                a.reference.segment,
                a.reference.offset,
                a.reference.offset + block_bytes(a.view.nbytes),
            )
            for a in held
        )
        for (one, _, end), (other, start, _) in itertools.pairwise(spans):
            assert one != other or end <= start

    arena.leases.end([a.reference.block for a in held])

    assert 0 == arena.used
    assert arena.bytes == sum(size for s in arena.segments.values() for _, size in s.holes)
    arena.trim(-1)
    assert 0 == arena.bytes


def test_memory_of_a_gpu_is_cut_by_address_and_counted_apart() -> None:
    arena = Arena(7)
    request = arena.segment_request(5000, gpu=1)
    arena.hold(request, 1 << 32, gpu=1)

    first = arena.allocate(5000, gpu=1)
    second = arena.allocate(5000, gpu=1)

    assert first is not None
    assert second is not None
    assert [1 << 32, (1 << 32) + 2 * PAGE] == [first.view, second.view]
    assert (request.segment, 2 * PAGE) == (second.reference.segment, second.reference.offset)
    assert arena.allocate(5000) is None
    assert arena.allocate(5000, gpu=0) is None
    assert (0, 0, request.size) == (arena.bytes, arena.unused_bytes, arena.bytes_on(1))
    # Its leases are like all others, but the memory stays.
    arena.leases.end([first.block.block])
    assert 1 == arena.used
    arena.leases.end([second.block.block])
    assert [] == arena.trim(0)
    assert arena.allocate(5000, gpu=1) is not None
