"""Metrics of the machine, from files as the kernel writes them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from zmqtriton_standard.metrics.exposition import render_machine
from zmqtriton_standard.metrics.machine import Machine

_MEMORY = "MemTotal:        1000 kB\nMemFree:  100 kB\nMemAvailable:  400 kB\nHugePages_Total:  0\n"


def write(proc: Path, *ticks: int) -> None:
    (proc / "stat").write_text(f"cpu  {' '.join(map(str, ticks))}\ncpu0 1 2 3 4\n")
    (proc / "meminfo").write_text(_MEMORY)


@pytest.mark.row("nv_cpu_utilization", "nv_cpu_memory_total_bytes", "nv_cpu_memory_used_bytes")
def test_the_share_of_the_last_interval_and_the_memory_now(tmp_path: Path) -> None:
    write(tmp_path, 100, 0, 100, 1000, 0, 0, 0, 0, 50, 0)
    machine = Machine(tmp_path)
    write(tmp_path, 110, 0, 105, 1040, 5, 0, 0, 0, 90, 0)

    machine.look()

    lines = render_machine(machine, {}).splitlines()
    assert {
        "nv_cpu_utilization 0.25",
        "nv_cpu_memory_total_bytes 1024000",
        "nv_cpu_memory_used_bytes 614400",
    } <= set(lines)
    assert "# HELP nv_cpu_utilization CPU utilization rate [0.0 - 1.0]" in lines


def test_the_memory_is_known_before_the_first_interval_is_over(tmp_path: Path) -> None:
    write(tmp_path, 100, 0, 100, 1000, 0, 0, 0, 0, 50, 0)

    lines = render_machine(Machine(tmp_path), {}).splitlines()

    assert {"nv_cpu_memory_total_bytes 1024000", "nv_cpu_memory_used_bytes 614400"} <= set(lines)


@pytest.mark.row("--metrics-interval-ms")
def test_it_is_looked_at_once_in_each_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 100, 0, 100, 1000, 0, 0, 0, 0, 50, 0)
    machine = Machine(tmp_path)
    slept: list[float] = []
    shares: list[float] = []

    async def sleep(interval_s: float) -> None:
        slept.append(interval_s)
        shares.append(machine.utilization)
        if len(slept) == 3:
            raise asyncio.CancelledError
        write(tmp_path, 100 + 10 * len(slept), 0, 100, 1000 + 30, 0, 0, 0, 0, 50, 0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(machine.watch(7.5))

    assert [7.5, 7.5, 7.5] == slept
    assert [0.0, 0.25, 1.0] == shares


@pytest.mark.row(
    "nv_pinned_memory_pool_total_bytes", "nv_pinned_memory_pool_used_bytes", "--allow-cpu-metrics"
)
def test_without_measurements_there_is_what_does_not_change() -> None:
    lines = render_machine(None, {}).splitlines()

    values = [line for line in lines if not line.startswith("#")]
    assert ["nv_pinned_memory_pool_total_bytes 0", "nv_pinned_memory_pool_used_bytes 0"] == values
    assert "# TYPE nv_pinned_memory_pool_used_bytes gauge" in lines


def test_of_a_cache_its_state_and_what_it_has_done() -> None:
    cache = {
        "utilization": 0.5,
        "entries": 3,
        "hits": 10,
        "misses": 4,
        "evictions": 1,
        "lookup_ns": 5_999,
        "insertion_ns": 7_000,
    }

    lines = render_machine(None, cache).splitlines()

    assert [
        "nv_cache_util 0.5",
        "nv_cache_num_entries 3",
        "nv_cache_num_hits 10",
        "nv_cache_num_misses 4",
        "nv_cache_num_lookups 14",
        "nv_cache_num_evictions 1",
        "nv_cache_lookup_duration 5",
        "nv_cache_insertion_duration 7",
    ] == [line for line in lines if line.startswith("nv_cache")]
