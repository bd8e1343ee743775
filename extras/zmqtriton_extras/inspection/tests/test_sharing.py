"""Memory of real processes: equal pages, and others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from zmqtriton_extras.inspection.explaining.sharing import read_memory

pytestmark = pytest.mark.slow

MIB = 1 << 20
CODE = "import os, random; random.seed({seed}); kept = random.randbytes({size}); print(flush=True)"


@contextmanager
def processes(*seeds: int) -> Iterator[list[int]]:
    with ExitStack() as stack:
        pids = []
        for seed in seeds:
            code = f"{CODE.format(seed=seed, size=20 * MIB)}; input()"
            pipe = subprocess.PIPE
            process = stack.enter_context(
                subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe)
            )
            assert process.stdout is not None
            process.stdout.readline()
            pids.append(process.pid)
        yield pids


def test_equal_memory_of_two_processes_is_found() -> None:
    with processes(1, 1) as pids:
        memory = read_memory(pids)

    assert memory is not None
    assert 19 * MIB <= memory.equal <= memory.private < 60 * MIB


def test_memory_of_another_content_is_not_equal() -> None:
    with processes(1, 2) as pids:
        memory = read_memory(pids)

    assert memory is not None
    assert memory.private > 19 * MIB > memory.equal


def test_one_process_has_nothing_to_be_equal_to_and_none_has_no_memory() -> None:
    with processes(1) as pids:
        memory = read_memory(pids)

    assert memory is not None
    assert (True, 0) == (memory.private > 19 * MIB, memory.equal)
    assert read_memory([]) is None
    assert read_memory(pids) is None  # it has ended
