"""The deal, on machines that are made up, and the machine as it is read from directories."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Hashable
from pathlib import Path

import pytest

from zmqtriton_extras.cores.dealing import Core, Machine, Share, deal
from zmqtriton_extras.cores.machine import cpu_list, describe, read_machine


def machine(
    nodes: int, cores: int, threads: int = 1, caches: int = 1, quota: float = math.inf
) -> Machine:
    """Return a machine; each node has so many cores and last caches, each core so many CPUs."""
    total = nodes * cores
    return Machine(
        tuple(
            Core(
                tuple(core + total * thread for thread in range(threads)),
                f"cache{core // (cores // caches)}",
                f"node{core // cores}",
            )
            for core in range(total)
        ),
        quota,
    )


TWO_SOCKETS = machine(2, 8, threads=2)


def even(count: int) -> dict[int, int]:
    return dict.fromkeys(range(count), 0)


def nodes_of(share: Share, machine: Machine) -> set[str]:
    return {core.node for core in machine.cores if {*core.cpus} & {*share.cpus}}


@pytest.mark.parametrize(
    ("count", "size"), [(1, 16), (2, 8), (3, 4), (4, 4), (5, 2), (8, 2), (16, 1)]
)
def test_instances_get_even_sets_of_one_socket(count: int, size: int) -> None:
    shares = deal(TWO_SOCKETS, even(count))

    assert {size} == {share.threads for share in shares.values()}
    for share in shares.values():  # hyperthreads of a core are dealt together
        assert {cpu % 16 for cpu in share.cpus[:size]} == {cpu % 16 for cpu in share.cpus[size:]}
    if count > 1:
        assert {("node0",), ("node1",)} == {(*nodes_of(s, TWO_SOCKETS),) for s in shares.values()}
    taken = [cpu for share in shares.values() for cpu in share.cpus]
    assert len(taken) == len({*taken}) <= 32


def test_a_set_shares_one_cache_if_it_fits() -> None:
    shares = deal(machine(1, 16, caches=4), {"small": 2, "large": 4, "other": 2})

    assert (0, 1, 2, 3) == shares["large"].cpus
    assert {4} == {cpu // 4 + 3 for cpu in (*shares["small"].cpus, *shares["other"].cpus)}


@pytest.mark.parametrize(
    ("where", "demands", "sizes"),
    [
        (TWO_SOCKETS, {"a": 4, "b": 4}, [4, 4]),
        (machine(4, 8), even(2), [16, 16]),  # two nodes each
        (machine(1, 8), {"even": 0, "numbered": 3, "other": 0}, [2, 3, 2]),
        (machine(1, 2), {"too_large": 64}, [2]),
    ],
)
def test_sizes(where: Machine, demands: dict[Hashable, int], sizes: list[int]) -> None:
    shares = deal(where, demands)

    assert sizes == [share.threads for share in shares.values()]


@pytest.mark.parametrize(("demands", "loads"), [(even(5), [2, 3]), ({0: 64, 1: 0}, [1, 2])])
def test_more_instances_than_cores_share_them_evenly(
    demands: dict[int, int], loads: list[int]
) -> None:
    shares = deal(machine(1, 2), demands).values()

    assert loads == sorted(Counter(cpu for share in shares for cpu in share.cpus).values())
    assert all(share.is_shared for share in shares)


@pytest.mark.parametrize(
    ("quota", "count", "threads"), [(3.5, 1, 3), (3.5, 2, 1), (3.5, 8, 1), (8, 2, 4), (99, 2, 8)]
)
def test_a_quota_limits_threads_and_not_the_cores_that_others_may_leave_free(
    quota: float, count: int, threads: int
) -> None:
    shares = deal(machine(1, 16, quota=quota), even(count))

    assert {16 // count} == {len(share.cpus) for share in shares.values()}
    assert {threads} == {share.threads for share in shares.values()}


@pytest.mark.parametrize("seed", range(40))
def test_what_changes_keeps_the_laws(seed: int) -> None:
    chance = random.Random(seed)
    where = machine(chance.choice((1, 2, 4)), chance.choice((4, 8)), chance.choice((1, 2)), 2)
    allowed = {cpu for core in where.cores for cpu in core.cpus}
    demands: dict[int, int] = {}
    shares: dict[int, Share] = {}
    for step in range(12):
        if demands and chance.random() < 0.4:
            del demands[chance.choice(list(demands))]
        demands[step] = chance.choice((0, 0, 0, 1, 2))

        before = {key: share.cpus for key, share in shares.items() if key in demands}
        was_enough = not any(share.is_shared for share in shares.values())
        shares = deal(where, demands, before)

        taken = Counter(cpu for share in shares.values() for cpu in share.cpus)
        assert taken.keys() <= allowed
        is_enough = sum(number or 1 for number in demands.values()) <= len(where.cores)
        assert is_enough is (taken.most_common(1)[0][1] == 1)
        evens = {shares[key].threads for key, number in demands.items() if not number}
        assert len(evens) <= 1
        if is_enough:
            assert all(shares[key].threads == n for key, n in demands.items() if n)
        for key, cpus in before.items() if is_enough and was_enough else ():
            kept = {*cpus} & {*shares[key].cpus}
            assert len(kept) == min(len(cpus), len(shares[key].cpus))


# ---------------------------------------------------------- the machine as it is read


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
    read = read_machine(root, range(8))

    assert (
        Core((0, 4), "0-1,4-5", "node0"),
        Core((1, 5), "0-1,4-5", "node0"),
        Core((2, 6), "2-3,6-7", "node1"),
        Core((3, 7), "2-3,6-7", "node1"),
    ) == read.cores
    assert math.inf == read.quota
    assert "4 cores in 2 caches and 2 NUMA nodes" == describe(read)


def test_cpus_that_are_offline_or_not_allowed_are_left_out(root: Path) -> None:
    read = read_machine(root, {0, 1, 5})

    assert [(0,), (1, 5)] == [core.cpus for core in read.cores]


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

    read = read_machine(root, range(8))
    assert (quota, quota < math.inf) == (
        read.quota,
        f"with the time of {quota:g}" in describe(read),
    )


@pytest.mark.parametrize(
    ("cpus", "text"), [((), ""), ((3,), "3"), ((0, 1, 2, 8), "0-2,8"), ((5, 0, 4), "0,4-5")]
)
def test_cpus_are_listed_as_the_kernel_does(cpus: tuple[int, ...], text: str) -> None:
    assert text == cpu_list(cpus)
