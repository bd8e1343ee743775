"""Memory that was freed is used again, instead of asking the kernel for pages each time."""

from __future__ import annotations

import subprocess
import sys

import pytest

from zmqtriton_frontends.process.allocator import UnusedMemory, unused_of

_PROGRAM = """
import resource
from zmqtriton_frontends.process.allocator import keep_freed_memory

assert keep_freed_memory()

def faults_of_copies():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        first = bytearray(b"x") * (16 << 20)
        second = bytes(first)
        del first, second
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults_of_copies()
print(faults_of_copies())
"""


@pytest.mark.slow
def test_copies_of_large_messages_take_no_fresh_pages() -> None:
    # When: what the program does ten times over has been done before
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )

    # Then: each copy has 4096 pages, of which none is new
    assert 1000 > int(done.stdout)


# ------------------------------------------------------------------- unused memory


MIB = 1 << 20
#: At the start; and what is never given back.
OWN, KEPT = 20 * MIB, 64 * MIB


class Process:
    """A process: what is unused in it, and how much of that can be given back."""

    def __init__(self) -> None:
        self.unused = OWN
        self.in_holes = 0
        self.times = 0
        self.memory = UnusedMemory(lambda: self.unused, self._give_back)

    def _give_back(self, kept: int) -> None:
        assert KEPT == kept
        self.times += 1
        self.unused -= self.in_holes
        self.in_holes = 0

    def free(self, size: int, in_holes: int = 0) -> None:
        self.unused += size
        self.in_holes += in_holes

    def check(self, times: int) -> int:
        """Look so often; return how often memory was given back."""
        before = self.times
        for _ in range(times):
            self.memory.check()
        return self.times - before


@pytest.fixture
def process() -> Process:
    return Process()


def test_much_is_given_back_at_once(process: Process) -> None:
    assert 0 == process.check(100)

    process.free(200 * MIB, in_holes=140 * MIB)

    assert 1 == process.check(1)
    assert OWN + 60 * MIB == process.unused
    assert 0 == process.check(100)


#: What is freed, so much of it in holes; and how often it is given back in so many looks.
USES: dict[str, list[tuple[int, int, int, int]]] = {
    "little is given back after a while": [(KEPT + 8 * MIB, 8 * MIB, 4, 0), (0, 0, 1, 1)],
    "what is worth keeping is kept": [(KEPT, KEPT, 100, 0)],
    "what is used again all the time is kept": [
        (KEPT, 0, 0, 0),
        *[(20 * MIB, 20 * MIB, 1, 0), (-40 * MIB, 0, 1, 0), (20 * MIB, 0, 0, 0)] * 100,
    ],
    "what cannot be given back is no reason to try again": [
        (300 * MIB, 0, 100, 1),
        (40 * MIB, 0, 100, 1),
    ],
    "what was used meanwhile and is freed again is given back": [
        (300 * MIB, 0, 100, 1),
        (-300 * MIB, 0, 100, 0),
        (300 * MIB, 0, 1, 1),
    ],
}


@pytest.mark.parametrize("steps", USES.values(), ids=USES)
def test_memory_is_given_back_where_it_is_worth_it(
    process: Process, steps: list[tuple[int, int, int, int]]
) -> None:
    for freed, in_holes, looks, times in steps:
        process.free(freed, in_holes)
        assert times == process.check(looks)


@pytest.mark.parametrize("size", [64 * MIB, MIB // 16])
def test_what_is_in_use_is_not_unused_whether_the_heap_has_it_or_not(size: int) -> None:
    before = unused_of(0)
    in_use = [bytearray(size) for _ in range(64 * MIB // size)]

    assert abs(unused_of(len(in_use) * size) - before) < 8 * MIB


#: Other memory lives between what is freed, so the heap does not shrink by itself.
_PROGRAM_OF_LOADS = """
import ctypes
from zmqtriton_frontends.process import allocator

assert allocator.keep_freed_memory()
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
memory = allocator.UnusedMemory()

def resident_mib():
    with open("/proc/self/statm") as sizes:
        return int(sizes.read().split()[1]) * 4096 >> 20

before = resident_mib()
large, small = [], []
for _ in range(40):
    large.append(library.malloc(8 << 20))
    ctypes.memset(large[-1], 1, 8 << 20)
    small.append(library.malloc(128 << 10))
held = resident_mib()
for address in large:
    library.free(ctypes.c_void_p(address))
freed = resident_mib()
memory.check()
print(held - before, freed - before, resident_mib() - before)
"""


@pytest.mark.slow
def test_holes_between_what_still_lives_go_back_to_the_kernel() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM_OF_LOADS],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    held, freed, left = map(int, done.stdout.split())

    assert held >= 320
    assert freed > 300, "it does not go by itself"
    assert left < 32
