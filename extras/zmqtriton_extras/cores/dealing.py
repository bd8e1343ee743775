"""Deals the cores of a machine to instances: a pure function of machine, demands and present sets.

A core is dealt as a whole, with all its hyperthreads. Sets are disjoint as long as there are
enough cores. A set stays in one NUMA node, and then with one cache, where it fits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

Key = TypeVar("Key")


class Core(NamedTuple):
    """A core that the server may use, with its place in the machine."""

    cpus: tuple[int, ...]
    #: The CPUs of the last cache that it shares, and of its NUMA node, in the kernel's words.
    cache: str = ""
    node: str = ""


class Machine(NamedTuple):
    """The cores that the server may use."""

    cores: tuple[Core, ...]
    #: Cores' worth of time that the control group allows.
    quota: float = math.inf


class Share(NamedTuple):
    """The set of one instance."""

    cpus: tuple[int, ...]
    #: Number of threads that can compute there at once: one a core, and less under a quota.
    threads: int
    #: True if other instances of the deal have some of its cores.
    is_shared: bool = False


def deal(
    machine: Machine,
    demands: Mapping[Key, int],
    present: Mapping[Key, Collection[int]] | None = None,
) -> dict[Key, Share]:
    """Return the set of each instance.

    A demand is a number of cores, or 0 for an even part of what the numbers leave. An instance
    keeps as many CPUs of its present set as its new set has room for.
    """
    present, total = present or {}, len(machine.cores)
    numbers = {key: min(number, total) for key, number in demands.items() if number}
    even = [key for key in demands if key not in numbers]
    _, loads = _place(machine, numbers, present)
    free = Counter(core.node for core, load in loads.items() if not load)
    is_enough = sum(numbers.values()) + len(even) <= total
    size = _even_size(free, len(even)) if even and is_enough else 1
    sets, loads = _place(machine, numbers | dict.fromkeys(even, size), present)
    return {
        key: Share(
            tuple(sorted(cpu for core in sets[key] for cpu in core.cpus)),
            max(1, int(len(sets[key]) * min(1.0, machine.quota / total) + 1e-9)),
            any(loads[core] > 1 for core in sets[key]),
        )
        for key in demands
    }


def _even_size(free: Mapping[str, int], count: int) -> int:
    """Return the largest size with room for `count` sets, each in a node or of whole nodes."""
    total = sum(free.values())
    if count == 1:
        return total
    inside = (
        s for s in range(total // count, 0, -1) if sum(n // s for n in free.values()) >= count
    )
    return max(next(inside, 1), len(free) // count * min(free.values()))


def _place(
    machine: Machine, sizes: Mapping[Key, int], present: Mapping[Key, Collection[int]]
) -> tuple[dict[Key, list[Core]], Counter[Core]]:
    """Return the cores of each instance, and the number of instances on each core.

    First each keeps what it can, then the largest set is completed first.
    """
    sets: dict[Key, list[Core]] = {}
    loads = Counter[Core]({core: 0 for core in machine.cores})
    for key, size in sizes.items():
        own = {*present.get(key, ())}
        kept = [core for core in loads if not loads[core] and own.intersection(core.cpus)]
        sets[key] = _nearest(kept, loads, (), min(size, len(kept)))
        loads.update(sets[key])
    for key, size in sorted(sizes.items(), key=lambda item: -item[1]):
        own_cores = sets[key]
        others = [core for core in loads if core not in own_cores]
        chosen = _nearest(others, loads, own_cores, size - len(own_cores))
        own_cores += chosen
        loads.update(chosen)
    return sets, loads


def _nearest(
    cores: Iterable[Core], loads: Mapping[Core, int], own: Sequence[Core], size: int
) -> list[Core]:
    """Return the least loaded cores, of those near to `own` and to each other."""
    ordered = sorted(cores, key=loads.__getitem__)
    if not size:
        return []
    usable = [core for core in ordered if loads[core] <= loads[ordered[size - 1]]]
    nodes, caches = (Counter(core[place] for core in usable) for place in (2, 1))
    own_nodes, own_caches = {core.node for core in own}, {core.cache for core in own}

    def rank(core: Core) -> tuple[object, ...]:
        room, of_cache = nodes[core.node], caches[core.cache]
        return (
            loads[core],
            core.node not in own_nodes,
            -room,  # instances are spread over the nodes
            core.node,
            core.cache not in own_caches,
            (0, of_cache) if of_cache >= size else (1, -of_cache),
            core.cache,
            core.cpus,
        )

    return sorted(usable, key=rank)[:size]
