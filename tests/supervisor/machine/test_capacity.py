"""Readings of processes and processors."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.waiting import eventually
from zmqtriton.supervisor.machine import capacity


def test_a_process_that_computes_has_had_some_of_a_processor_and_wants_more() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            eventually(lambda: capacity.processor_use(process.pid).ticks > 5, 30, "it computes")
            assert capacity.processor_use(process.pid).is_runnable
        finally:
            process.kill()


def test_a_process_that_sleeps_wants_nothing() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            eventually(lambda: not capacity.processor_use(process.pid).is_runnable, 30, "it sleeps")
        finally:
            process.kill()
    assert (0, False) == capacity.processor_use(process.pid)


def test_at_least_one_may_compute() -> None:
    assert capacity.max_computing() >= len(os.sched_getaffinity(0))
