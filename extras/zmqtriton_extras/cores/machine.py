"""Reads which cores this process may use, and where they are; changes nothing."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path

from zmqtriton.sdk.process import core_quota
from zmqtriton_extras.cores.dealing import Core, Machine


def read_machine(root: Path = Path("/"), allowed: Iterable[int] | None = None) -> Machine:
    """Return the cores that this process may use, by its affinity, and its quota.

    A CPU about which the kernel says nothing is a core of its own.
    """
    cpus = sorted(os.sched_getaffinity(0) if allowed is None else allowed)
    places = {cpu: _place(root / f"sys/devices/system/cpu/cpu{cpu}") for cpu in cpus}
    cores: dict[str, list[int]] = {}
    for cpu, (siblings, _, _) in places.items():
        cores.setdefault(siblings or f"cpu{cpu}", []).append(cpu)
    return Machine(
        tuple(Core(tuple(own), *places[own[0]][1:]) for own in cores.values()),
        core_quota(root),
    )


def _place(cpu: Path) -> tuple[str, str, str]:
    """Return the siblings of a CPU, the CPUs that share its last cache, and its NUMA node."""
    siblings = _text(cpu / "topology/core_cpus_list") or _text(
        cpu / "topology/thread_siblings_list"
    )
    caches = sorted(cpu.glob("cache/index*"), key=lambda index: _text(index / "level"))
    node = next((path.name for path in cpu.glob("node[0-9]*")), "")
    return siblings, _text(caches[-1] / "shared_cpu_list") if caches else "", node


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def describe(machine: Machine) -> str:
    """Return the machine in words."""
    count, quota = len(machine.cores), machine.quota
    places = [
        (len({core[at] for core in machine.cores}), name)
        for name, at in (("caches", 1), ("NUMA nodes", 2))
    ]
    where = " and ".join(f"{number} {name}" for number, name in places if number > 1)
    time = f", with the time of {quota:g}" if quota < math.inf else ""
    return f"{count} core{'s' * (count > 1)}{where and f' in {where}'}{time}"


def cpu_list(cpus: Iterable[int]) -> str:
    """Return numbers as the kernel writes them: `0-3,8`."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1][1:] = [cpu]
        else:
            runs.append([cpu])
    return ",".join("-".join(map(str, run)) for run in runs)
