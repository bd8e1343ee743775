"""Laws of the deal, on machines that are made up."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import chain

import pytest

from zmqtriton_extras.cores.dealing import Core, Machine, Share, deal


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
    assert {2 * size} == {len(share.cpus) for share in shares.values()}
    if count > 1:
        assert {1} == {len(nodes_of(share, TWO_SOCKETS)) for share in shares.values()}
        assert {"node0", "node1"} == {*chain(*(nodes_of(s, TWO_SOCKETS) for s in shares.values()))}
    taken = [cpu for share in shares.values() for cpu in share.cpus]
    assert len(taken) == len({*taken}) <= 32


def test_hyperthreads_of_a_core_are_dealt_together() -> None:
    shares = deal(TWO_SOCKETS, even(16))

    assert {(core, core + 16) for core in range(16)} == {share.cpus for share in shares.values()}


def test_two_instances_are_on_two_sockets() -> None:
    first, second = deal(TWO_SOCKETS, {"a": 4, "b": 4}).values()

    assert nodes_of(first, TWO_SOCKETS) != nodes_of(second, TWO_SOCKETS)


def test_a_set_shares_one_cache_if_it_fits() -> None:
    shares = deal(machine(1, 16, caches=4), {"small": 2, "large": 4, "other": 2})

    assert (0, 1, 2, 3) == shares["large"].cpus
    assert {4} == {cpu // 4 + 3 for cpu in (*shares["small"].cpus, *shares["other"].cpus)}


def test_few_instances_have_whole_nodes() -> None:
    shares = deal(machine(4, 8), even(2))

    assert [16, 16] == [share.threads for share in shares.values()]
    assert [2, 2] == [len(nodes_of(share, machine(4, 8))) for share in shares.values()]


def test_a_number_is_taken_before_the_rest_is_dealt() -> None:
    shares = deal(machine(1, 8), {"even": 0, "numbered": 3, "other": 0})

    assert {"even": 2, "numbered": 3, "other": 2} == {k: s.threads for k, s in shares.items()}


def test_more_instances_than_cores_share_them_evenly() -> None:
    shares = deal(machine(1, 2), even(5))

    assert [2, 3] == sorted(Counter(share.cpus for share in shares.values()).values())
    assert {(1, True)} == {(share.threads, share.is_shared) for share in shares.values()}


def test_a_number_that_is_too_large_is_the_whole_machine() -> None:
    shares = deal(machine(1, 2), {"a": 64, "b": 0})

    assert {"a": (2, True), "b": (1, True)} == {
        key: (share.threads, share.is_shared) for key, share in shares.items()
    }


@pytest.mark.parametrize(
    ("quota", "count", "threads"), [(3.5, 1, 3), (3.5, 2, 1), (3.5, 8, 1), (8, 2, 4), (99, 2, 8)]
)
def test_a_quota_limits_threads_and_not_the_cores_that_others_may_leave_free(
    quota: float, count: int, threads: int
) -> None:
    shares = deal(machine(1, 16, quota=quota), even(count))

    assert {16 // count} == {len(share.cpus) for share in shares.values()}
    assert {threads} == {share.threads for share in shares.values()}


def test_a_core_with_one_allowed_hyperthread_is_a_core() -> None:
    half = Machine((Core((0,), "c", "n"), Core((1, 5), "c", "n")))

    assert [(0,), (1, 5)] == sorted(share.cpus for share in deal(half, even(2)).values())


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
