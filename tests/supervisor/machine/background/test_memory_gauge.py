"""The memory of processes, as the kernel tells it to a thread."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys

from zmqtriton.supervisor.machine.background import MemoryGauge, process_memory_bytes
from zmqtriton.supervisor.models.memory_measurements import MemoryReport

_LARGE = "import sys; kept = b'x' * (64 << 20); print(flush=True); sys.stdin.read()"


def test_what_processes_take_is_summed_up_by_name() -> None:
    answers: list[tuple[int, MemoryReport]] = []
    with selectors.DefaultSelector() as selector:
        gauge = MemoryGauge(selector, lambda *answer: answers.append(answer))
        pipe = subprocess.PIPE
        with subprocess.Popen([sys.executable, "-c", _LARGE], stdin=pipe, stdout=pipe) as large:
            assert large.stdout is not None
            large.stdout.readline()
            gauge.measure(7, {large.pid: "m", os.getpid(): "n", 2**22 + 1: "gone"})
            for key, _ in selector.select(30):
                key.data()
            large.communicate()
        gauge.close()

    [(ticket, report)] = answers
    sizes = report.by_model
    assert 7 == ticket
    assert report.available_bytes > 0
    assert 64 << 20 < sizes["m"] < 200 << 20
    assert sizes["n"] > 0
    assert 0 == sizes["gone"]


def test_a_process_that_is_gone_takes_nothing() -> None:
    assert 0 == process_memory_bytes(2**22 + 1)


def test_a_gauge_that_nobody_asked_closes() -> None:
    with selectors.DefaultSelector() as selector:
        MemoryGauge(selector, lambda ticket, report: None).close()
