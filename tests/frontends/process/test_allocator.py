"""Memory that was freed is used again, instead of asking the kernel for pages each time."""

from __future__ import annotations

import subprocess
import sys

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


def test_copies_of_large_messages_take_no_fresh_pages() -> None:
    # When: what the program does ten times over has been done before
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )

    # Then: each copy has 4096 pages, of which none is new
    assert 1000 > int(done.stdout)
