"""Reading what others have placed, and what cannot be a reference."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import resource
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.segments import allocate, segment
from zmqtriton_floor.arena import PAGE, Allocation, Arena, block_of
from zmqtriton_floor.errors import ProtocolError
from zmqtriton_floor.mappings import REGIONS_FROM, Mappings, Pagemap
from zmqtriton_floor.wire import Block, Reference

pytestmark = pytest.mark.slow

OWNER = 7


class Pair:
    """An owner and one reader, in one process."""

    def __init__(self, *, is_private: bool) -> None:
        self.released: list[Block] = []
        self.mappings = Mappings(is_private=is_private, on_release=self.released.extend)
        self.arena = Arena(OWNER)

    def write(self, data: bytes) -> Allocation:
        allocation = allocate(self.arena, len(data), self.mappings, owner=OWNER)
        allocation.view[:] = data
        return allocation


@pytest.fixture(params=[False, True], ids=["shared", "private"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    pair = Pair(is_private=request.param)

    yield pair

    pair.mappings.close()


@pytest.fixture
def private() -> Iterator[Pair]:
    pair = Pair(is_private=True)

    yield pair

    pair.mappings.close()


def test_what_the_owner_wrote_is_read_without_a_copy(pair: Pair) -> None:
    allocation = pair.write(b"abc" * 1000)

    [array] = pair.mappings.open([allocation.reference])

    assert b"abc" * 1000 == array.tobytes()
    allocation.view[:3] = b"xyz"  # the same memory
    assert b"xyz" == array[:3].tobytes()
    pair.mappings.remove(OWNER, allocation.reference.segment)


def test_a_tensor_in_the_middle_of_a_block_can_be_read(pair: Pair) -> None:
    allocation = pair.write(bytes(range(256)) * 100)
    inner = allocation.reference._replace(offset=allocation.reference.offset + 5000, size=300)

    [array] = pair.mappings.open([inner])

    assert (bytes(range(256)) * 100)[5000:5300] == array.tobytes()


def _slice(array: Any) -> Any:
    return memoryview(array)[10:20]


def _matrix(array: Any) -> Any:
    return array.view(np.float32).reshape(100, 100)[3:5].T


@pytest.mark.parametrize("view_of", [_slice, _matrix])
def test_leased_blocks_are_released_with_the_last_view(
    pair: Pair, view_of: Callable[[Any], Any]
) -> None:
    allocation = pair.write(b"x" * 40_000)
    first, second = pair.mappings.open([allocation.reference, allocation.reference], is_leased=True)
    view = view_of(first)

    del first
    assert [] == pair.released
    del second
    assert [] == pair.released
    del view
    assert [allocation.block, allocation.block] == pair.released


def test_a_frontend_cannot_write() -> None:
    pair = Pair(is_private=False)
    [array] = pair.mappings.open([pair.write(b"x" * 40_000).reference])

    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_a_model_may_write_and_nobody_else_sees_it(private: Pair) -> None:
    allocation = private.write(b"x" * 40_000)
    [array] = private.mappings.open([allocation.reference])

    array[:] = 0

    assert {ord("x")} == set(allocation.view.tobytes())
    del array
    [again] = private.mappings.open([allocation.reference])
    assert {ord("x")} == set(again.tobytes())


def test_two_who_read_the_same_block_do_not_see_each_others_changes(private: Pair) -> None:
    allocation = private.write(b"x" * 40_000)
    [first] = private.mappings.open([allocation.reference])
    first[:] = 0

    [second] = private.mappings.open([allocation.reference])
    second[5] = 1

    assert (ord("x"), {0}) == (second[4], set(first.tobytes()))


def test_one_tensor_that_is_opened_twice_can_be_changed_by_itself(private: Pair) -> None:
    reference = private.write(b"abc" * 1000).reference
    part = reference._replace(offset=reference.offset + 3, size=300)
    behind = reference._replace(offset=reference.offset + 2997, size=3)

    first, second, inner = private.mappings.open([reference, reference, part], is_leased=True)
    before, after = private.mappings.open([part, behind])
    first[:] = 0

    assert b"abc" * 1000 == second.tobytes()
    assert b"abc" * 100 == inner.tobytes() == before.tobytes()
    assert b"abc" == after.tobytes()
    del first
    assert [block_of(reference)] * 3 == private.released


def test_a_kept_array_stays_what_it_was_when_the_owner_goes_on(private: Pair) -> None:
    allocation = private.write(b"x" * 40_000)
    [kept] = private.mappings.open([allocation.reference])
    kept[0] = ord("y")

    private.mappings.detach([allocation.block])
    private.arena.leases.end([allocation.reference.block])
    allocation = private.write(b"z" * 40_000)

    assert b"y" + b"x" * 39_999 == kept.tobytes()
    # The same pages under another name: what is kept here must not hide what the owner wrote.
    [other] = private.mappings.open([allocation.reference])
    assert {ord("z")} == set(other.tobytes())


@pytest.mark.parametrize("leave", [Mappings.detach_all, Mappings.close])
def test_what_is_kept_stays_when_its_reader_leaves(
    pair: Pair, leave: Callable[[Mappings], None]
) -> None:
    allocations = [pair.write(b"x" * 40_000) for _ in range(3)]
    kept = pair.mappings.open([one.reference for one in allocations[:2]])

    leave(pair.mappings)
    for allocation in allocations:
        allocation.view[:] = b"z" * 40_000

    assert [b"x" * 40_000] * 2 == [array.tobytes() for array in kept]


def test_a_fork_keeps_what_its_parent_had(pair: Pair) -> None:
    allocation = pair.write(b"x" * 40_000)
    [kept] = pair.mappings.open([allocation.reference])
    reader, writer = socket.socketpair()

    child = os.fork()
    if not child:
        reader.recv(1)
        os._exit(int(kept.tobytes() != b"x" * 40_000))
    del kept
    allocation.view[:] = b"z" * 40_000
    writer.send(b".")

    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    reader.close()
    writer.close()


def test_copies_go_with_their_last_array(pair: Pair) -> None:
    allocation = pair.write(b"x" * 40_000)
    [first], [second] = (pair.mappings.open([allocation.reference]) for _ in range(2))
    pair.mappings.detach_all()
    del first
    [third] = pair.mappings.open([allocation.reference])
    assert b"x" * 40_000 == second.tobytes() == third.tobytes()
    del second, third

    allocation.view[:] = b"z" * 40_000

    [array] = pair.mappings.open([allocation.reference])
    assert {ord("z")} == set(array.tobytes())
    allocation.view[:1] = b"!"
    assert ord("!") == array[0]


def test_once_nothing_is_kept_the_pages_are_the_owners_again(private: Pair) -> None:
    allocation = private.write(b"x" * 40_000)
    [kept] = private.mappings.open([allocation.reference])
    private.mappings.detach([allocation.block])

    del kept
    allocation.view[:] = b"z" * 40_000

    [array] = private.mappings.open([allocation.reference])
    assert {ord("z")} == set(array.tobytes())
    allocation.view[:1] = b"!"
    assert ord("!") == array[0]


def test_what_was_only_read_need_not_be_mapped_again(private: Pair) -> None:
    allocation = private.write(b"x" * 16_000_000)
    assert 16_000_000 == np.count_nonzero(private.mappings.open([allocation.reference])[0])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    [array] = private.mappings.open([allocation.reference])
    total = int(array[::PAGE].sum())

    # Mapped anew it would be 244, with 16 pages at a time.
    assert 100 > resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert ord("x") * len(array[::PAGE]) == total


def test_nothing_is_detached_that_nobody_reads(private: Pair) -> None:
    allocation = private.write(b"x" * 40_000)

    private.mappings.detach([allocation.block, Block(9, 9, 9)])

    [array] = private.mappings.open([allocation.reference])
    allocation.view[:1] = b"!"
    assert ord("!") == array[0]


def test_arrays_outlive_a_segment_that_its_owner_has_dropped(pair: Pair) -> None:
    allocation = pair.write(b"x" * 40_000)
    [array] = pair.mappings.open([allocation.reference], is_leased=True)

    pair.mappings.remove(OWNER, 1)

    assert {ord("x")} == set(array.tobytes())
    assert [(OWNER, 1)] == pair.mappings.missing([allocation.reference])
    del array
    assert [allocation.block] == pair.released


def test_the_memory_of_a_dropped_segment_goes_with_the_last_view(pair: Pair) -> None:
    allocation = pair.write(b"x" * 10_000_000)
    [array] = pair.mappings.open([allocation.reference])
    before = _mapped()
    pair.mappings.remove(OWNER, allocation.reference.segment)
    assert before == _mapped()

    del array

    assert before - 1 == _mapped()


def _mapped() -> int:
    return sum("memfd:" in line for line in Path("/proc/self/maps").read_text().splitlines())


def test_what_is_mapped_already_is_not_mapped_twice(pair: Pair) -> None:
    descriptor, before = segment(PAGE), _mapped()

    pair.mappings.add(OWNER, 5, os.dup(descriptor))
    pair.mappings.add(OWNER, 5, descriptor)

    assert before + 1 == _mapped()
    pair.mappings.remove(OWNER, 5)


def test_a_file_that_could_be_cut_short_is_refused(pair: Pair, tmp_path: Path) -> None:
    unsealed = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.truncate(unsealed, PAGE)
    (tmp_path / "f").write_bytes(b"x" * PAGE)

    for descriptor in (unsealed, os.open(tmp_path / "f", os.O_RDWR)):
        with pytest.raises(ProtocolError, match="not sealed"):
            pair.mappings.add(OWNER, 1, descriptor)
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(descriptor)


@pytest.mark.parametrize("is_copied", [False, True], ids=["mapped", "copied"])
@pytest.mark.parametrize("size", [0, PAGE])
def test_a_region_that_was_cut_short_when_it_was_opened_is_read_once_it_is_whole(
    private: Pair, tmp_path: Path, size: int, is_copied: bool
) -> None:
    region, mappings = tmp_path / "region", private.mappings
    region.write_bytes(b"a" * size)
    mappings.add(OWNER, REGIONS_FROM, os.open(region, os.O_RDWR), is_copied=is_copied)
    first = Reference(OWNER, REGIONS_FROM, 1, 0, PAGE)
    kept = mappings.open([first])[0] if size else None
    whole = Reference(OWNER, REGIONS_FROM, 2, 0, 3 * PAGE)
    with pytest.raises(ProtocolError, match="not inside"):
        mappings.open([whole])

    region.write_bytes(b"b" * 3 * PAGE)
    [array] = mappings.open([whole])

    assert b"b" * 3 * PAGE == bytes(array)
    mappings.detach([block_of(first)])
    with region.open("r+b") as file:
        file.write(b"c" * PAGE)
    assert kept is None or b"c" not in bytes(kept)


def test_an_empty_segment_is_refused(pair: Pair) -> None:
    with pytest.raises(ProtocolError, match="cannot be mapped"):
        pair.mappings.add(OWNER, 1, segment(0))


HUGE = 2**63 - 1


@pytest.mark.parametrize(
    "change",
    [
        {"offset": -1},
        {"offset": -PAGE, "size": PAGE},
        {"size": -1},
        {"offset": HUGE},
        {"size": HUGE},
        {"offset": HUGE, "size": HUGE},
        {"offset": 1 << 20, "size": 1},
        {"offset": (1 << 20) - 1, "size": 2},
        {"segment": 99},
        {"segment": -1},
        {"owner": 8},
        {"block": -1},
    ],
)
def test_a_reference_to_what_is_not_there_is_refused(pair: Pair, change: dict[str, Any]) -> None:
    good = pair.write(b"x" * 40_000).reference
    assert 1 << 20 == pair.arena.bytes

    with pytest.raises(ProtocolError):
        pair.mappings.open([good, good._replace(**change)], is_leased=True)

    assert [] == pair.released


def test_a_reference_up_to_the_very_end_is_read(pair: Pair) -> None:
    good = pair.write(b"x" * 40_000).reference

    [end, nothing] = pair.mappings.open(
        [
            good._replace(block=50, offset=(1 << 20) - 3, size=3),
            good._replace(block=51, offset=1 << 20, size=0),
        ]
    )

    assert (3, 0) == (end.nbytes, nothing.nbytes)


def test_the_name_of_a_block_says_nothing_of_where_it_lies(private: Pair) -> None:
    one = private.write(b"x" * 40_000)

    # A mistaken owner: the same pages under two names.
    [first, second] = private.mappings.open([one.reference, one.reference._replace(block=77)])
    first[0] = 0

    assert (ord("x"), block_of(one.reference)) == (second[0], one.block)


@pytest.mark.parametrize("is_private", [False, True])
def test_no_descriptor_and_no_mapping_stays(is_private: bool) -> None:
    gc.collect()
    before, mapped = len(os.listdir("/proc/self/fd")), _mapped()
    pair = Pair(is_private=is_private)
    blocks = []
    for size in (10, 100_000, 5_000_000, 20_000_000, 600_000):
        allocation = pair.write(b"x" * size)
        pair.mappings.open([allocation.reference])
        blocks.append(allocation.reference.block)
    assert len(os.listdir("/proc/self/fd")) > before

    del allocation
    pair.arena.leases.end(blocks)
    for dropped in pair.arena.trim(-1):
        pair.mappings.remove(OWNER, dropped.segment)
    pair.mappings.close()

    assert (before, mapped) == (len(os.listdir("/proc/self/fd")), _mapped())


# ------------------------------------------------------------------- pagemap


PAGES = 64


class Mapped:
    """A private mapping of memory that somebody else has filled."""

    def __init__(self) -> None:
        descriptor = os.memfd_create("test")
        os.write(descriptor, b"x" * PAGES * PAGE)
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        self.memory: Any = mmap.mmap(descriptor, PAGES * PAGE, mmap.MAP_PRIVATE, protection)
        os.close(descriptor)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))


@pytest.fixture
def mapped() -> Mapped:
    return Mapped()


@pytest.fixture
def pagemap() -> Iterator[Pagemap]:
    pagemap = Pagemap()

    yield pagemap

    pagemap.close()


def test_pages_that_were_only_read_are_unwritten(mapped: Mapped, pagemap: Pagemap) -> None:
    before = pagemap.is_unwritten(mapped.address, PAGES * PAGE)
    assert b"x" * PAGES * PAGE == mapped.memory[:]

    assert before
    assert pagemap.is_unwritten(mapped.address, PAGES * PAGE)


@pytest.mark.parametrize("position", [0, 5 * PAGE + 17, PAGES * PAGE - 1])
def test_one_byte_is_enough(mapped: Mapped, pagemap: Pagemap, position: int) -> None:
    assert b"x" * PAGES * PAGE == mapped.memory[:]

    mapped.memory[position] = 0

    assert not pagemap.is_unwritten(mapped.address, PAGES * PAGE)
    assert not pagemap.is_unwritten(mapped.address + position, 1)


def test_what_lies_beside_the_range_is_not_asked_for(mapped: Mapped, pagemap: Pagemap) -> None:
    mapped.memory[3 * PAGE] = 0

    assert pagemap.is_unwritten(mapped.address, 3 * PAGE)
    assert pagemap.is_unwritten(mapped.address + 4 * PAGE, 10 * PAGE)
    assert not pagemap.is_unwritten(mapped.address + 2 * PAGE, PAGE + 1)


def test_dropped_pages_are_the_files_again(mapped: Mapped, pagemap: Pagemap) -> None:
    mapped.memory[:] = b"y" * PAGES * PAGE

    mapped.memory.madvise(mmap.MADV_DONTNEED)

    assert pagemap.is_unwritten(mapped.address, PAGES * PAGE)


@pytest.mark.parametrize("path", ["/nowhere", "/dev/null"])
def test_where_the_kernel_does_not_say_pages_count_as_written(mapped: Mapped, path: str) -> None:
    pagemap = Pagemap(path)

    assert not pagemap.is_unwritten(mapped.address, PAGE)

    pagemap.close()


def test_a_fork_is_not_told_of_its_parents_pages(mapped: Mapped, pagemap: Pagemap) -> None:
    child = os.fork()
    if not child:
        os._exit(int(pagemap.is_unwritten(mapped.address, PAGE)))

    assert 0 == os.waitpid(child, 0)[1]


def test_a_closed_one_says_nothing(mapped: Mapped, pagemap: Pagemap) -> None:
    pagemap.close()

    assert not pagemap.is_unwritten(mapped.address, PAGE)
