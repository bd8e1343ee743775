"""The instances that a configuration asks for, and where they run.

`--host-policy` names the cores for the processes of an instance. It is applied when a stub is
started. Which memory it uses follows from where it runs, as the kernel decides; nothing is bound to
the memory of a node.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from zmqtriton.config.instances import (
    apply_group_defaults,
    instance_count_problems,
    instance_specs,
    set_instance_count,
)
from zmqtriton.config.model_config import ModelHost
from zmqtriton.options import Setting
from zmqtriton.options.values import BadValue, core_numbers
from zmqtriton.supervisor.models.blueprint import Scale
from zmqtriton.supervisor.models.instance import InstanceSlot

_log = logging.getLogger(__name__)
_NUMA_NODES = Path("/sys/devices/system/node")


def host_policy_name(named: str, kind: str, device: int) -> str:
    """Return the policy that an instance group names, or else that of its kind, as in Triton."""
    return named or (f"gpu_{device}" if kind == "GPU" else kind.lower())


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


def instance_slots(config: Any) -> tuple[InstanceSlot, ...]:
    return tuple(
        InstanceSlot(
            i.name,
            i.kind,
            i.device_id,
            i.resource_needs,
            i.passive,
            host_policy_name(i.host_policy, i.kind, i.device_id),
        )
        for i in instance_specs(config)
    )


def expected_slots(config: Any, host: ModelHost) -> tuple[InstanceSlot, ...]:
    """Return the expected instances; the first one's model completes the configuration.

    Groups for missing hardware have none and are refused in the end; until then one is assumed.
    """
    draft = type(config)()
    draft.CopyFrom(config)
    apply_group_defaults(draft, host.gpus)
    if any(instance_count_problems(draft)):  # refused later, too
        return (InstanceSlot(f"{config.name}_0", "CPU", 0),)
    return instance_slots(draft) or (InstanceSlot(f"{config.name}_0", "CPU", 0),)


def scaled_config(config: Any, scale: Scale) -> Any:
    """Return a copy of the configuration that asks for this number of instances."""
    scaled = type(config)()
    scaled.CopyFrom(config)
    set_instance_count(scaled, scale.instances, scale.group)
    return scaled
