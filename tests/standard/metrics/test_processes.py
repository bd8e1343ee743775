"""Processor time and memory of processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zmqtriton_standard.metrics.processes import Processes

TICKS_PER_S, PAGE_BYTES = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


def write(proc: Path, pid: int, *, cpu_s: float, started: int = 100, pages: int = 10) -> None:
    ticks = int(cpu_s * TICKS_PER_S)
    used = [str(ticks // 4), str(ticks - ticks // 4)]
    fields = ["S", *["0"] * 10, *used, *["0"] * 6, str(started)]
    (proc / str(pid)).mkdir(exist_ok=True)
    (proc / str(pid) / "stat").write_text(f"{pid} (a) name)) {' '.join(fields)} 0 {pages} 0\n")


def test_the_share_of_a_core_since_the_last_look(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    write(tmp_path, 7, cpu_s=1.0)
    processes.look([7, 8], 10.0)
    assert {7: (None, 10 * PAGE_BYTES, 1.0)} == processes.usage

    write(tmp_path, 7, cpu_s=2.0, pages=20)
    processes.look([7], 15.0)

    assert {7: (20.0, 20 * PAGE_BYTES, 1.0)} == processes.usage


def test_another_process_with_the_same_pid_begins_anew(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    write(tmp_path, 7, cpu_s=1.0)
    processes.look([7], 10.0)

    write(tmp_path, 7, cpu_s=2.0, started=200)
    processes.look([7], 15.0)

    assert processes.usage[7].cpu_percent is None
    assert 2.0 == processes.usage[7].cpu_s


def test_of_this_process() -> None:
    processes = Processes()
    processes.look([os.getpid()], 10.0)
    processes.look([os.getpid()], 11.0)

    usage = processes.usage[os.getpid()]
    assert usage.cpu_percent is not None
    assert usage.memory_bytes == pytest.approx(resident_bytes(), rel=0.2)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES
