"""The cores that processes of models may use.

`--host-policy` names them for the processes of an instance. It is applied when a stub is started.
Which memory it uses follows from where it runs, as the kernel decides; nothing is bound to the
memory of a node.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path

from zmqtriton.options import Setting
from zmqtriton.options.values import BadValue, core_numbers

_log = logging.getLogger(__name__)
_NUMA_NODES = Path("/sys/devices/system/node")


def cores_of_policy(
    settings: Iterable[Setting], policy: str, nodes: Path = _NUMA_NODES
) -> tuple[int, ...]:
    """Return the cores of a policy; () means any.

    If both a node and cores are named, the cores must belong to the node.
    """
    cores: set[int] | None = None
    for setting in settings:
        if setting.name != policy or setting.key not in ("numa-node", "cpu-cores"):
            continue
        if setting.key == "numa-node":
            numbers = _cores_of_node(nodes / f"node{int(setting.value)}" / "cpulist")
        else:
            numbers = core_numbers(setting.value)
        cores = numbers if cores is None else cores & numbers
    return tuple(sorted(cores or ()))


def _cores_of_node(path: Path) -> set[int]:
    try:
        return core_numbers(path.read_text().strip())
    except (OSError, BadValue) as error:
        _log.warning("--host-policy: %s tells no cores: %s", path, error)
        return set()


def pin_to_cores(pid: int, cores: Iterable[int]) -> None:
    """Pin all threads of a process, and so everything that they will start.

    If that is not possible it runs anywhere, and the log says so.
    """
    try:
        # The main thread first: it starts the others, which inherit the setting.
        os.sched_setaffinity(pid, cores)
        for thread in os.listdir(f"/proc/{pid}/task"):
            os.sched_setaffinity(int(thread), cores)
    except OSError as error:
        _log.warning("process %d cannot be kept on cores %s: %s", pid, list(cores), error)
