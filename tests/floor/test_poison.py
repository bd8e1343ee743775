"""Blocks that are filled when they are free, and the readers that are found then."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.floor.test_arena import Clock
from tests.support.poison import FILE
from tests.support.segments import allocate
from tools import poison
from tools.poison import (
    KEPT_BLOCKS,
    KEPT_S,
    LINE_BYTES,
    Poison,
    PoisonedArena,
    PoisonedMappings,
)
from zmqtriton_floor.arena import IDLE_S, LARGE_BYTES, PAGE, Allocation, Arena
from zmqtriton_floor.mappings import Mappings
from zmqtriton_floor.memory_kinds import make_arena, make_mappings
from zmqtriton_floor.settings.stub import Memory
from zmqtriton_floor.wire import Block

pytestmark = pytest.mark.slow

OWNER = 7


@pytest.fixture
def findings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The findings of a test, which are none of its session's."""
    texts: list[str] = []
    monkeypatch.setattr(poison, "findings", texts)
    monkeypatch.setattr(poison, "say", lambda text: None)
    return texts


class Pair:
    """An owner and one reader, in one process."""

    def __init__(self, clock: Clock, *, is_private: bool) -> None:
        self.clock = clock
        self.arena = PoisonedArena(OWNER, clock=clock)
        self.released: list[Block] = []
        self.mappings = PoisonedMappings(is_private=is_private, on_release=self.released.extend)

    def write(self, data: bytes) -> Allocation:
        allocation = allocate(self.arena, len(data), self.mappings, owner=OWNER)
        allocation.view[:] = data
        return allocation

    def open(self, allocation: Allocation) -> Any:
        [array] = self.mappings.open([allocation.reference])
        return array


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def arena(clock: Clock) -> PoisonedArena:
    return PoisonedArena(OWNER, clock=clock)


@pytest.fixture(params=[False, True], ids=["shared", "private"])
def pair(request: pytest.FixtureRequest, clock: Clock, findings: list[str]) -> Iterator[Pair]:
    pair = Pair(clock, is_private=request.param)

    yield pair

    pair.mappings.close()


@pytest.fixture
def private(clock: Clock, findings: list[str]) -> Iterator[Pair]:
    """One whose reader may write."""
    pair = Pair(clock, is_private=True)
    yield pair
    pair.mappings.close()


def test_the_settings_of_a_process_choose_the_kind_of_its_memory() -> None:
    for file, arena, mappings in (
        ("", Arena, Mappings),
        (FILE, PoisonedArena, PoisonedMappings),
    ):
        memory = Memory(poison=file)
        assert arena is type(make_arena(OWNER, memory))
        assert mappings is type(make_mappings(memory, is_private=True, on_release=print))


def test_a_line_names_a_block_and_its_cause() -> None:
    line = Poison(OWNER, 2, 3, "a reason, " * 500).encode()

    assert LINE_BYTES == len(line)
    read = poison.decode(line)
    assert read is not None
    assert (OWNER, 2, 3) == read[:3]
    assert read.cause.startswith("a reason, a reason")
    assert poison.decode(bytes(LINE_BYTES)) is None
    assert poison.decode(line[:10]) is None
    assert poison.decode(line[:39] + b'{"inputs": []}'.ljust(LINE_BYTES - 39)) is None


# ------------------------------------------------------------------------------ owners


def test_a_free_block_is_filled_at_once(arena: PoisonedArena) -> None:
    block = allocate(arena, 3 * PAGE)
    neighbour = allocate(arena, PAGE)
    neighbour.view[:] = bytes(PAGE)

    arena.leases.lend([block.reference.block])
    arena.leases.end([block.reference.block])
    assert poison.decode(bytes(block.view[:LINE_BYTES])) is None

    arena.leases.take_back([block.reference.block])

    for start in range(0, 3 * PAGE, LINE_BYTES):
        read = poison.decode(bytes(block.view[start : start + LINE_BYTES]))
        assert read is not None
        assert block.block == read[:3]
        assert read.cause.startswith("released by a reader")
        assert "the owner's lease ended" in read.cause
    assert bytes(PAGE) == bytes(neighbour.view)


def test_the_death_of_a_broker_is_a_cause(arena: PoisonedArena) -> None:
    block = allocate(arena, PAGE)
    arena.leases.send([block.reference.block])
    arena.doubt_leases()

    arena.leases.end_doubted()

    read = poison.decode(bytes(block.view[:LINE_BYTES]))
    assert read is not None
    assert read.cause.startswith("in doubt after a broker's death")


def test_a_free_block_is_used_again_only_after_a_while(arena: PoisonedArena, clock: Clock) -> None:
    whole = allocate(arena, 1 << 20)
    arena.leases.end([whole.reference.block])

    clock.now_s += KEPT_S - 0.1
    assert arena.allocate(PAGE) is None
    assert arena.used == 0

    clock.now_s += 0.1
    again = arena.allocate(PAGE)
    assert again is not None
    assert whole.reference.offset == again.reference.offset


def test_no_more_than_a_number_of_blocks_are_kept_apart(arena: PoisonedArena) -> None:
    blocks = [allocate(arena, 16 * PAGE) for _ in range(KEPT_BLOCKS + 3)]
    size = arena.bytes
    arena.leases.end([block.reference.block for block in blocks])

    again = [allocate(arena, 16 * PAGE) for _ in range(3)]

    assert [block.reference[3:] for block in blocks[:3]] == [b.reference[3:] for b in again]
    assert size == arena.bytes


def test_memory_goes_back_as_early_as_without_poison(arena: PoisonedArena, clock: Clock) -> None:
    block = allocate(arena, LARGE_BYTES + 1)
    arena.leases.end([block.reference.block])
    assert arena.next_trim_s() == IDLE_S

    clock.now_s += IDLE_S - 1
    assert not arena.trim()
    assert arena.next_trim_s() == 1

    clock.now_s += 1
    assert arena.next_trim_s() == 0
    assert [block.reference.segment] == [freed.segment for freed in arena.trim()]
    assert arena.next_trim_s() is None


def test_memory_goes_back_at_once_where_it_is_short(arena: PoisonedArena) -> None:
    block = allocate(arena, LARGE_BYTES + 1)
    arena.leases.end([block.reference.block])

    assert [block.reference.segment] == [freed.segment for freed in arena.trim(0)]


def test_a_segment_goes_back_with_its_abandoned_block(arena: PoisonedArena) -> None:
    block = allocate(arena, LARGE_BYTES + 1)

    assert [block.reference.segment] == [
        freed.segment for freed in arena.abandon(block.reference.block)
    ]
    assert 0 == arena.bytes


def test_memory_that_was_never_made_is_not_filled(clock: Clock, findings: list[str]) -> None:
    arena = PoisonedArena(OWNER, is_gradual=True, clock=clock)
    block = allocate(arena, 8 << 20)
    arena.make(block.reference.block, PAGE)

    arena.leases.end([block.reference.block])

    assert poison.decode(bytes(block.view[:LINE_BYTES])) is not None
    assert poison.decode(bytes(block.view[PAGE : PAGE + LINE_BYTES])) is None
    assert arena.trim(0)
    assert not findings


def test_a_fork_fills_nothing_of_its_parent(arena: PoisonedArena) -> None:
    block = allocate(arena, PAGE)
    block.view[:] = b"x" * PAGE

    child = os.fork()
    if not child:
        arena.leases.end([block.reference.block])
        os._exit(0)
    os.waitpid(child, 0)

    assert b"x" * PAGE == bytes(block.view)


def test_an_owner_that_writes_to_a_free_block_is_found(
    arena: PoisonedArena, findings: list[str]
) -> None:
    block = allocate(arena, PAGE)
    arena.leases.end([block.reference.block])

    block.view[100] = 1
    arena.trim(0)

    [text] = findings
    assert text.startswith("a block was written after it was free: block 1 of segment 1")
    assert "the owner's lease ended" in text


@pytest.mark.parametrize("change", ["end", "add", "send", "lend"])
def test_a_lease_of_a_free_block_is_found(
    arena: PoisonedArena, findings: list[str], change: str
) -> None:
    block = allocate(arena, PAGE).reference.block
    arena.leases.end([block])
    assert not findings

    getattr(arena.leases, change)([block])

    [text] = findings
    assert text.startswith(f"a lease of a free block: block {block}, ")
    assert "freed: the owner's lease ended" in text


def test_a_reader_that_releases_a_free_block_is_not(
    arena: PoisonedArena, findings: list[str]
) -> None:
    block = allocate(arena, PAGE).reference.block
    arena.leases.end([block])

    arena.leases.take_back([block, 12345])
    arena.leases.end([12345])

    assert not findings


def test_an_owner_that_passes_on_a_free_block_is_found(
    arena: PoisonedArena, findings: list[str]
) -> None:
    block = allocate(arena, 2 * PAGE)
    other = allocate(arena, 2 * PAGE)
    assert block.reference == arena.locate(block.view)
    arena.leases.end([block.reference.block])

    assert arena.locate(block.view[8:16]) is None
    assert arena.locate(other.view[8:16]) is not None

    [text] = findings
    assert text.startswith("a tensor was passed on after its block was free: block 1 of segment 1")


def test_threads_share_it(arena: PoisonedArena, findings: list[str]) -> None:
    allocate(arena, 1 << 20)  # the first segment

    def use(number: int) -> None:
        for _ in range(300):
            block = arena.allocate(PAGE)
            if block is not None:
                block.view[:] = bytes([number]) * PAGE
                arena.leases.lend([block.reference.block])
                arena.leases.end([block.reference.block])
                assert bytes([number]) * PAGE == bytes(block.view)
                arena.leases.take_back([block.reference.block])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(use, range(4)))

    assert arena.used == 1
    assert not findings


# ------------------------------------------------------------------------------ readers


def test_an_array_over_a_block_that_is_free_is_found_when_it_ends(
    pair: Pair, findings: list[str]
) -> None:
    written = pair.write(b"x" * 3 * PAGE)
    array = pair.open(written)

    pair.arena.leases.end([written.reference.block])
    assert not findings
    del array

    [text] = findings
    assert text.startswith("a tensor was read after its block was free: block 1 of segment 1 of")
    assert "when its last array ended" in text
    assert "freed: the owner's lease ended" in text


def test_an_array_that_is_kept_is_found_when_another_one_begins(
    pair: Pair, findings: list[str]
) -> None:
    kept, other = pair.write(b"x" * PAGE), pair.write(b"y" * PAGE)
    array = pair.open(kept)
    pair.arena.leases.end([kept.reference.block])

    for _ in range(3):
        pair.open(other)

    [text] = findings  # once
    assert "while it was kept" in text
    del array
    assert len(findings) == 1


def test_a_block_that_is_free_already_is_found_when_it_is_opened(
    pair: Pair, findings: list[str]
) -> None:
    written = pair.write(b"x" * PAGE)
    pair.arena.leases.end([written.reference.block])

    array = pair.open(written)

    [text] = findings
    assert "seen when it was opened" in text
    del array
    assert len(findings) == 1


def test_an_array_whose_memory_is_that_of_a_later_block_is_found(
    pair: Pair, findings: list[str]
) -> None:
    written = pair.write(b"x" * (1 << 20))
    array = pair.open(written)
    pair.arena.leases.end([written.reference.block])
    pair.clock.now_s += KEPT_S
    later = pair.write(b"y" * (1 << 20))
    assert written.reference.offset == later.reference.offset

    pair.arena.leases.end([later.reference.block])
    del array

    [text] = findings
    assert "block 1 of segment 1 of process 7, now in block 2" in text


def test_a_block_whose_owner_has_written_less_than_all_of_it_is_none(
    pair: Pair, findings: list[str]
) -> None:
    first = pair.write(b"x" * (1 << 20))
    pair.arena.leases.end([first.reference.block])
    pair.clock.now_s += KEPT_S

    second = pair.arena.allocate(1 << 20)
    assert second is not None
    array = pair.open(second)

    assert poison.decode(array[:LINE_BYTES].tobytes()) is not None
    del array
    assert not findings


def test_a_reader_with_pages_of_its_own_is_none(private: Pair, findings: list[str]) -> None:
    written = private.write(b"x" * PAGE)
    array = private.open(written)

    private.mappings.detach([written.block])
    private.arena.leases.end([written.reference.block])

    assert b"x" * PAGE == array.tobytes()
    del array
    gc.collect()
    assert not findings


def test_a_reader_that_has_changed_its_pages_is_found(private: Pair, findings: list[str]) -> None:
    written = private.write(b"x" * PAGE)
    array = private.open(written)
    array[:] = 1

    private.arena.leases.end([written.reference.block])
    del array

    assert len(findings) == 1


def test_a_free_block_is_found_before_it_is_passed_on(private: Pair, findings: list[str]) -> None:
    written = private.write(b"x" * PAGE)
    array = private.open(written)
    private.arena.leases.end([written.reference.block])

    assert private.mappings.locate(memoryview(array)) is not None

    assert len(findings) == 1
    del array


def test_a_segment_that_its_owner_has_dropped_is_not_looked_at(
    pair: Pair, findings: list[str]
) -> None:
    written = pair.write(b"x" * PAGE)
    array = pair.open(written)
    pair.mappings.remove(OWNER, written.reference.segment)

    del array

    assert not findings
