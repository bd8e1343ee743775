"""The kernel's account of pages that were written to, and the assumption where it has none."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from typing import Any

import pytest

from zmqtriton_floor.arena import PAGE
from zmqtriton_floor.mappings import Pagemap

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
