"""The memory of a model's instances: private, shared, and equal in each but not shared.

Reads the kernel's figures about processes of this machine. Two instances are compared page by page,
at some places of each large area; without the right to read their memory nothing counts as equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from zmqtriton_standard.memory.readings import read_shares

PROC = Path("/proc")
_PAGE = 4096
_KIB = 1024
#: Minimum bytes of an area of memory that is compared.
_LEAST = 1 << 20
_SAMPLES = 32
_AREA = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ 0\s*(\S*)$")


class Memory(NamedTuple):
    """The bytes of one process of instances, as an average over all."""

    private: int
    shared: int
    #: The private bytes, and a part of each shared page (PSS).
    pss: int
    #: Part of the private bytes.
    equal: int
    #: The bytes by number of the GPU, where NVIDIA's library lists processes.
    on_gpus: Mapping[str, int] = {}


class _Area(NamedTuple):
    start: int
    size: int
    private: int


def read_memory(pids: Sequence[int], proc: Path = PROC) -> Memory | None:
    """Return the memory of the processes; None if one cannot be read."""
    shares = [each for pid in pids if (each := read_shares(pid, proc))]
    if not pids or len(shares) < len(pids):
        return None
    private, shared, pss = (sum(sizes) // len(pids) for sizes in zip(*shares, strict=True))
    equal = _equal_bytes(*(proc / str(pid) for pid in pids[:2])) if len(pids) > 1 else 0
    return Memory(private, shared, pss, min(private, equal))


def _areas(process: Path) -> Iterator[_Area]:
    """Return the large areas of memory that neither a file nor another process shares."""
    start = size = 0
    for line in (process / "smaps").read_text("utf-8", "replace").splitlines():
        if "-" in line.partition(" ")[0]:
            match = _AREA.match(line)
            start, size = (int(match[1], 16), int(match[2], 16)) if match else (0, 0)
            size -= start
        elif line.startswith("Private_Dirty:") and size >= _LEAST:
            private = int(line.split()[1]) * _KIB
            if private >= _LEAST:
                yield _Area(start, size, private)


def _equal_bytes(one: Path, other: Path) -> int:
    """Estimate the bytes that two processes have equal, in areas of the same size."""
    try:
        others = list(_areas(other))
        equal = 0
        with open(one / "mem", "rb") as mine, open(other / "mem", "rb") as its:
            for area in _areas(one):
                match = next((each for each in others if each.size == area.size), None)
                if match is None:
                    continue
                others.remove(match)
                step = max(_PAGE, area.size // _SAMPLES // _PAGE * _PAGE)
                pages = [
                    (_page(mine, area.start + at), _page(its, match.start + at))
                    for at in range(0, area.size, step)
                ]
                written = [pair for pair in pages if any(pair[0])]
                same = sum(first == second for first, second in written)
                equal += area.private * same // max(1, len(written))
    except OSError:
        return 0
    return equal


def _page(memory: BinaryIO, at: int) -> bytes:
    memory.seek(at)
    return memory.read(_PAGE)
