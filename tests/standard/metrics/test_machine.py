"""Metrics of the machine, its pressure and its neighbours, from files as kernels write them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from zmqtriton_standard.metrics import machine
from zmqtriton_standard.metrics.exposition import render_machine
from zmqtriton_standard.metrics.machine import Look, Machine, MachineLoad
from zmqtriton_standard.metrics.own import render_load

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


TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SUPERVISOR, METRICS, STUB, ITS_CHILD, NEIGHBOUR = 10, 11, 12, 13, 20
PARENTS = {SUPERVISOR: 1, METRICS: SUPERVISOR, STUB: SUPERVISOR, ITS_CHILD: STUB, NEIGHBOUR: 1}


class Proc:
    """A machine of as many cores as this one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now_s = 100.0
        self._waited_s = {"cpu": 50.0, "memory": 0.0, "io": 0.0}
        self._cpu_s = dict.fromkeys(PARENTS, 0.0)
        (path / "pressure").mkdir()
        (path / "meminfo").write_text("MemTotal: 1000 kB\n")
        self._write()

    def pass_time(self, waited_s: dict[str, float], cores: dict[int, float]) -> None:
        """Let five seconds pass, in which processes wait and take these shares of all cores."""
        self.now_s += 5
        for resource, seconds in waited_s.items():
            self._waited_s[resource] += seconds
        for pid, share in cores.items():
            self._cpu_s[pid] += 5 * share * (os.cpu_count() or 1)
        self._write()

    def _write(self) -> None:
        for resource, seconds in self._waited_s.items():
            text = f"some avg10=0.00 avg60=0.00 avg300=0.00 total={seconds * 1e6:.0f}\nfull x\n"
            (self.path / "pressure" / resource).write_text(text)
        busy = round(sum(self._cpu_s.values()) * TICKS_PER_S)
        idle = round(self.now_s * TICKS_PER_S * (os.cpu_count() or 1)) - busy
        (self.path / "stat").write_text(f"cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\n")
        for pid, seconds in self._cpu_s.items():
            (self.path / str(pid)).mkdir(exist_ok=True)
            ticks = round(seconds * TICKS_PER_S)
            fields = [
                "S",
                str(PARENTS[pid]),
                *["0"] * 9,
                str(ticks - ticks // 4),
                str(ticks // 4),
                *["0"] * 9,
            ]
            (self.path / str(pid) / "stat").write_text(f"{pid} (a) b) {' '.join(fields)}\n")


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def look_often(proc: Proc, waited_s: dict[str, float], cores: dict[int, float]) -> MachineLoad:
    load = MachineLoad(SUPERVISOR, proc.path)
    asyncio.run(load.look(proc.now_s))
    for _ in range(5):
        proc.pass_time(waited_s, cores)
        asyncio.run(load.look(proc.now_s))
    return load


def test_neighbours_that_take_the_processors_are_told(proc: Proc) -> None:
    load = look_often(proc, {"cpu": 4.5}, {NEIGHBOUR: 0.7, STUB: 0.2, METRICS: 0.1})

    assert load.last.cpu_waiting_percent == pytest.approx(90.0)
    assert load.last.neighbours_cpu_percent == pytest.approx(70.0, abs=1)
    [trouble] = load.troubles()
    assert "cpu" == trouble["resource"]
    text = "other programs take 70 % of the machine's CPU: for 90 % of the time a process waits"
    assert trouble["text"].startswith(text)


def test_a_server_that_is_busy_itself_has_no_neighbours(proc: Proc) -> None:
    load = look_often(proc, {"cpu": 4.5}, {NEIGHBOUR: 0.05, STUB: 0.5, ITS_CHILD: 0.4})

    assert load.last.neighbours_cpu_percent == pytest.approx(5.0, abs=1)
    assert [] == load.troubles()


def test_processes_are_not_read_while_processors_are_there(proc: Proc) -> None:
    load = look_often(proc, {"cpu": 0.5}, {NEIGHBOUR: 0.9})

    assert load.last == pytest.approx(Look(10.0, 0.0, 0.0, None))
    assert [] == load.troubles()


def test_of_too_many_processes_nothing_is_concluded(
    proc: Proc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_MAX_PROCESSES", len(PARENTS) - 1)

    assert look_often(proc, {"cpu": 4.5}, {STUB: 0.9}).last.neighbours_cpu_percent is None


@pytest.mark.parametrize(
    ("waited_s", "text"),
    [
        ({"memory": 1.0}, "memory is short: for 20 % of the time a process waits for it"),
        ({"io": 4.0}, "disks are slow or busy: for 80 % of the time a process waits for them"),
    ],
)
def test_waits_for_memory_and_disks_are_told(
    proc: Proc, waited_s: dict[str, float], text: str
) -> None:
    load = look_often(proc, waited_s, {})

    assert [text] == [trouble["text"] for trouble in load.troubles()]


def test_a_moment_is_no_trouble(proc: Proc) -> None:
    load = MachineLoad(SUPERVISOR, proc.path)
    asyncio.run(load.look(proc.now_s))
    proc.pass_time({"memory": 5.0}, {})

    asyncio.run(load.look(proc.now_s))

    assert 100.0 == load.last.memory_waiting_percent
    assert [] == load.troubles()


def test_a_kernel_that_measures_nothing_is_no_trouble(proc: Proc) -> None:
    for path in (proc.path / "pressure").iterdir():
        path.unlink()

    load = look_often(proc, {}, {NEIGHBOUR: 0.9})
    for path in (proc.path / "pressure").iterdir():
        path.unlink()
    blind = MachineLoad(SUPERVISOR, proc.path)
    asyncio.run(blind.look(1.0))

    assert [] == [*load.troubles(), *blind.troubles()]
    assert Look() == asyncio.run(blind.look(6.0))
    assert "" == render_load(blind)


def test_the_metrics_have_the_waits_and_the_share(proc: Proc) -> None:
    load = look_often(proc, {"cpu": 4.5, "io": 0.5}, {NEIGHBOUR: 0.75, STUB: 0.25})

    lines = [line for line in render_load(load).splitlines() if not line.startswith("#")]

    assert [
        'zmqtriton_pressure_seconds_total{resource="cpu"} 72.5',
        'zmqtriton_pressure_seconds_total{resource="memory"} 0',
        'zmqtriton_pressure_seconds_total{resource="io"} 2.5',
    ] == lines[:3]
    assert lines[3].startswith("zmqtriton_neighbours_cpu_ratio 0.7")
