"""What is read about cores from directories that stand for the kernel's."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from zmqtriton_extras.cores.dealing import Core
from zmqtriton_extras.cores.machine import cpu_list, describe, read_machine


def add_cpu(root: Path, cpu: int, siblings: str, cache: str, node: int) -> None:
    place = root / f"sys/devices/system/cpu/cpu{cpu}"
    for name, text in (
        ("topology/core_cpus_list", siblings),
        ("cache/index0/level", "1"),
        ("cache/index0/shared_cpu_list", siblings),
        ("cache/index3/level", "3"),
        ("cache/index3/shared_cpu_list", cache),
        (f"node{node}/cpulist", cache),
    ):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(f"{text}\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the root of two sockets with two cores of two hyperthreads each."""
    for cpu in range(8):
        core = cpu % 4
        socket = core // 2
        cache = f"{2 * socket}-{2 * socket + 1},{2 * socket + 4}-{2 * socket + 5}"
        add_cpu(tmp_path, cpu, f"{core},{core + 4}", cache, socket)
    return tmp_path


def test_cores_have_their_hyperthreads_cache_and_node(root: Path) -> None:
    machine = read_machine(root, range(8))

    assert (
        Core((0, 4), "0-1,4-5", "node0"),
        Core((1, 5), "0-1,4-5", "node0"),
        Core((2, 6), "2-3,6-7", "node1"),
        Core((3, 7), "2-3,6-7", "node1"),
    ) == machine.cores
    assert math.inf == machine.quota
    assert "4 cores in 2 caches and 2 NUMA nodes" == describe(machine)


def test_cpus_that_are_offline_or_not_allowed_are_left_out(root: Path) -> None:
    machine = read_machine(root, {0, 1, 5})

    assert [(0,), (1, 5)] == [core.cpus for core in machine.cores]


def test_a_cpu_of_which_the_kernel_says_nothing_is_a_core(tmp_path: Path) -> None:
    assert (Core((0,)), Core((3,))) == read_machine(tmp_path, {0, 3}).cores


@pytest.mark.parametrize(
    ("line", "files", "quota"),
    [
        ("0::/pod/x", {"pod/x/cpu.max": "350000 100000"}, 3.5),
        ("0::/pod/x", {"pod/x/cpu.max": "max 100000", "pod/cpu.max": "200000 100000"}, 2),
        ("0::/pod/x", {"pod/x/cpu.max": "max 100000"}, math.inf),
        ("3:cpu:/x", {"cpu/x/cpu.cfs_quota_us": "150000", "cpu/x/cpu.cfs_period_us": "1000"}, 150),
        ("3:cpu:/x", {"cpu/x/cpu.cfs_quota_us": "-1", "cpu/x/cpu.cfs_period_us": "1000"}, math.inf),
    ],
)
def test_the_quota_is_the_least_of_the_groups(
    root: Path, line: str, files: dict[str, str], quota: float
) -> None:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(f"{line}\n")
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    assert quota == read_machine(root, range(8)).quota


def test_a_quota_is_part_of_the_description(root: Path) -> None:
    machine = read_machine(root, {0, 1})._replace(quota=1.5)

    assert "2 cores, with the time of 1.5" == describe(machine)


@pytest.mark.parametrize(
    ("cpus", "text"), [((), ""), ((3,), "3"), ((0, 1, 2, 8), "0-2,8"), ((5, 0, 4), "0,4-5")]
)
def test_cpus_are_listed_as_the_kernel_does(cpus: tuple[int, ...], text: str) -> None:
    assert text == cpu_list(cpus)
