"""The limit of the memory of the door's process, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.server import ROOT

_BEGIN = """
import ctypes, mmap, resource, threading
from zmqtriton_extras.door.process.memory import MemoryLimit
from zmqtriton_frontends.process.allocator import keep_freed_memory

def thread():
    try:
        threading.Thread(target=int).start()
    except RuntimeError:
        return "no thread"
    return "a thread"

keep_freed_memory()
limit = MemoryLimit(1 << 20)
"""
#: Messages without end, the small pieces of others behind them, and their end.
_FULL_HEAP = """
malloc, free = ctypes.CDLL(None).malloc, ctypes.CDLL(None).free
malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
free.argtypes = [ctypes.c_void_p]
frames = []
while frame := malloc(16 << 20):
    frames.append(frame)
limit.check()
print("full:", malloc(16 << 20))
others = [malloc(4096) for _ in range(40)]
for frame in frames:
    free(frame)
print("then:", thread())
limit.check()
print("later:", thread())
"""
_TOO_LARGE_HEAP = """
resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
heap = mmap.mmap(-1, 3 << 30, mmap.MAP_PRIVATE)
limit.check()
"""


def _run(script: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _BEGIN + script]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_heap_that_cannot_shrink_leaves_room_for_what_lies_outside_of_it() -> None:
    done = _run(_FULL_HEAP)

    assert done.stdout.splitlines() == ["full: None", "then: no thread", "later: a thread"]
    assert not done.stderr


def test_a_heap_that_only_grows_ends_the_process() -> None:
    done = _run(_TOO_LARGE_HEAP)

    assert (done.returncode, done.stdout) == (1, "")
    assert "messages without end have left the door no memory" in done.stderr
