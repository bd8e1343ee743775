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
    IDLE_S,
    LARGE_BYTES,
    PAGE,
    USERS_FROM,
    Allocation,
    Arena,
    block_bytes,
    is_size_sealed,
)
from zmqtriton_floor.errors import Unavailable
from zmqtriton_floor.mappings import REGIONS_FROM
from zmqtriton_floor.memory_kinds import make_arena
from zmqtriton_floor.settings.stub import Memory


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


def test_a_block_has_whole_pages_and_the_size_that_was_asked_for(arena: Arena) -> None:
    allocation = allocate(arena, 100_000)

    reference = allocation.reference
    assert (7, 1, 1, 100_000) == (
        reference.owner,
        reference.segment,
        reference.block,
        reference.size,
    )
    assert 0 == reference.offset % PAGE
    assert 100_000 == allocation.view.nbytes
    assert not allocation.view.readonly


def test_blocks_do_not_overlap(arena: Arena) -> None:
    allocations = [
        allocate(arena, size) for size in (1, PAGE, PAGE + 1, 70_000, 300_000, 5_000_000)
    ]

    for i, allocation in enumerate(allocations):
        allocation.view[:] = bytes([i + 1]) * allocation.view.nbytes

    assert [{i + 1} for i in range(len(allocations))] == [
        set(a.view.tobytes()) for a in allocations
    ]


def test_a_block_that_is_free_is_used_again_under_another_name(arena: Arena) -> None:
    first = allocate(arena, 100_000).reference
    arena.leases.end([first.block])

    second = allocate(arena, 100_000).reference

    assert (first.segment, first.offset) == (second.segment, second.offset)
    assert first.block != second.block


def test_a_stale_name_frees_nothing(arena: Arena) -> None:
    first = allocate(arena, 100_000).reference
    arena.leases.end([first.block])
    second = allocate(arena, 100_000).reference

    arena.leases.end([first.block, first.block, 12345, -1])

    assert 1 == arena.used
    assert second.offset != allocate(arena, 100_000).reference.offset


def test_what_a_users_code_writes_to_shares_no_segment_with_other_blocks(arena: Arena) -> None:
    for size in (100, 5_000_000):
        other = allocate(arena, size).reference
        assert arena.allocate(size, is_users=True) is None  # though there is room
        request = arena.segment_request(size, is_users=True)
        arena.add(request, segment(request.size))

        allocation = arena.allocate(size, is_users=True)

        assert allocation is not None
        assert other.segment < USERS_FROM <= allocation.reference.segment < REGIONS_FROM
        assert allocation.reference == arena.locate(allocation.view)


def test_a_block_is_free_when_each_of_its_leases_has_ended(arena: Arena) -> None:
    block = allocate(arena, 100_000).reference.block
    arena.leases.add([block, block])

    arena.leases.end([block, block])
    assert 1 == arena.used

    arena.leases.end([block])
    assert 0 == arena.used


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


def test_a_broker_that_dies_before_all_have_told_leaves_nothing_behind(arena: Arena) -> None:
    block = allocate(arena, 50_000).reference.block
    arena.leases.send([block])

    arena.doubt_leases()
    arena.leases.lend([block])
    arena.doubt_leases()
    arena.leases.end_doubted()

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


def test_leases_that_are_lost_with_their_broker_are_in_doubt(arena: Arena) -> None:
    block = allocate(arena, 50_000).reference.block
    arena.leases.end([block], after=1)

    arena.doubt_leases()
    assert 1 == arena.used
    arena.leases.take_leases([block])
    arena.leases.end_doubted()
    assert 1 == arena.used
    arena.leases.take_back([block])

    assert 0 == arena.used


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


def test_neighbours_that_are_free_become_one_hole(arena: Arena) -> None:
    blocks = [allocate(arena, 300_000) for _ in range(3)]
    assert {1} == {b.reference.segment for b in blocks}

    for i in (0, 2, 1):
        arena.leases.end([blocks[i].reference.block])

    assert 0 == allocate(arena, 900_000).reference.offset


def test_a_large_tensor_gets_a_segment_of_its_own(arena: Arena) -> None:
    small, large = allocate(arena, 1000).reference, allocate(arena, LARGE_BYTES + 1).reference

    assert small.segment != large.segment
    assert 0 == large.offset
    assert allocate(arena, 1000).reference.segment == small.segment


def test_a_large_segment_serves_a_tensor_of_about_its_size_again(arena: Arena) -> None:
    first = allocate(arena, 16 << 20).reference
    arena.leases.end([first.block])

    assert first.segment == allocate(arena, 15 << 20).reference.segment
    assert first.segment != allocate(arena, 5 << 20).reference.segment


def test_segments_of_the_pool_grow_so_that_there_are_few(arena: Arena) -> None:
    for _ in range(200):
        allocate(arena, 100_000)

    assert arena.allocate(1) is not None
    assert arena.segment_request(1).segment <= 8


def test_the_pool_starts_and_grows_as_the_settings_say() -> None:
    arena = make_arena(7, Memory(1 << 16, 3 << 16))

    first = arena.segment_request(1)
    arena.add(first, segment(first.size))

    assert 65536 == first.size
    assert 3 * 65536 == arena.segment_request(1).size


def test_a_segment_goes_back_when_it_was_empty_for_a_while(arena: Arena, clock: Clock) -> None:
    block = allocate(arena, 100_000).reference.block
    clock.now_s += 2 * IDLE_S
    assert [] == arena.trim()
    assert arena.next_trim_s() is None

    arena.leases.end([block])
    assert [] == arena.trim()
    assert arena.next_trim_s() == pytest.approx(IDLE_S)

    clock.now_s += IDLE_S
    assert [wire.FreeSegment(1)] == arena.trim()
    assert 0 == arena.bytes


def test_what_a_reader_of_the_arena_has_in_hand_survives_the_segment(arena: Arena) -> None:
    allocation = allocate(arena, 100_000)
    allocation.view[:] = b"x" * 100_000
    arena.leases.end([allocation.reference.block])

    arena.trim(0)

    assert {ord("x")} == set(allocation.view.tobytes())


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


@pytest.mark.parametrize("error", ["ENOSYS", "EPERM"])
def test_memory_is_made_also_where_a_container_forbids_the_call(tmp_path: Path, error: str) -> None:
    file = tmp_path / "file"
    command = [*forbidden_calls.without(error, "fallocate"), sys.executable, "-c", _POPULATE]

    assert 9 == int(subprocess.check_output([*command, str(file)], timeout=60))
    assert (bytes(PAGE + 100) + b"x" * PAGE).ljust(10 * PAGE, b"\0") == file.read_bytes()


@pytest.mark.row("B21")
def test_a_refusal_names_the_size_that_it_would_have_had(arena: Arena) -> None:
    allocate(arena, 100_000)

    error = arena.refuse(arena.segment_request(5_000_000), "There is none.")

    assert (
        f"Failed to increase the shared memory pool size to {(1 << 20) + 5_242_880} bytes. "
        "There is none."
    ) == error.text


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
    arena.add(request, segment(request.size))
    allocation = arena.allocate(LARGE_BYTES)
    assert allocation is not None
    arena.make(allocation.reference.block, LARGE_BYTES)


def test_a_block_that_is_abandoned_takes_a_segment_made_for_it_along(clock: Clock) -> None:
    arena, allocation, other = gradual(clock, 64 << 20)
    arena.make(allocation.reference.block, 5 << 20)
    small = allocate(arena, 1000)

    assert [wire.FreeSegment(1)] == arena.abandon(allocation.reference.block)
    assert ([], []) == (arena.abandon(small.reference.block), arena.abandon(small.reference.block))

    assert ([2], 0) == (list(arena.segments), arena.used)
    os.close(other)


def test_nobody_can_write_or_resize_a_segment_of_ours(arena: Arena) -> None:
    request = arena.segment_request(100_000)
    descriptor = segment(request.size)
    other = os.dup(descriptor)
    arena.add(request, descriptor)

    assert is_size_sealed(other)
    for attempt in (
        lambda: os.write(other, b"x"),
        lambda: os.ftruncate(other, 0),
        lambda: os.ftruncate(other, 1 << 30),
    ):
        with pytest.raises(PermissionError):
            attempt()
    os.close(other)


def test_a_view_of_the_arena_is_recognised(arena: Arena) -> None:
    allocate(arena, 1000)
    allocation = allocate(arena, 100_000)

    reference = arena.locate(allocation.view[1000:3000])

    assert reference == allocation.reference._replace(
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

    assert 0 == arena.used
    assert 0 == allocate(arena, 1_000_000).reference.offset


@given(st.integers(0, 1 << 40))
def test_a_block_wastes_little(size: int) -> None:
    room = block_bytes(size)

    assert 0 == room % PAGE
    assert size <= room <= max(PAGE, size + size // 8 + PAGE)


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
