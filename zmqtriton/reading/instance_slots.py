"""The instances that a configuration asks for, and the processes that have them.

A plain model with a single instance, whose model.py has a method adopt(), is hosted as one with
INSTANCES threads: its process can import changed code next to the code that serves.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from zmqtriton.config.backends import PYTHON
from zmqtriton.config.instances import (
    THREADS,
    instance_count_problems,
    instance_specs,
    with_group_defaults,
)
from zmqtriton.config.model_config import ModelHost
from zmqtriton.config.parameters import INSTANCES, kind_of_instances, parameter_text
from zmqtriton.reading.blueprint import InstanceSlot


def host_policy_name(named: str, kind: str, device: int) -> str:
    """Return the policy that an instance group names, or else that of its kind, as in Triton."""
    return named or (f"gpu_{device}" if kind == "GPU" else kind.lower())


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

    Groups for missing hardware have no instances, and are refused later, as impossible numbers are;
    until then one is assumed.
    """
    draft = with_group_defaults(config, host.gpus)
    slots = () if any(instance_count_problems(draft)) else instance_slots(draft)
    return slots or (InstanceSlot(f"{config.name}_0", "CPU", 0),)


def are_instances_bound(config: Any) -> bool:
    """Return whether a change of instances affects requests."""
    is_bound = config.HasField("sequence_batching") or config.HasField("ensemble_scheduling")
    return is_bound or any(
        group.passive or group.HasField("rate_limiter") for group in config.instance_group
    )


def choose_kind(config: Any, count: int, files: Iterable[str]) -> tuple[str, str]:
    """Return the kind of a model's instances, and why changed code cannot adopt although it may.

    The kind is "forks" or "threads" of a process that has loaded the model, or "". `count` is the
    number of instances, `files` are the model.py's.
    """
    kind, named = kind_of_instances(config), parameter_text(config, INSTANCES)
    if kind not in ("", THREADS) or config.backend != PYTHON or not any(map(_has_adopt, files)):
        return kind, ""
    if are_instances_bound(config) or config.response_cache.enable:
        why = "its requests are bound to instances, or its responses are cached"
    elif count > 1 and not kind:
        why = f"each of its {count} instances has its own process: set {INSTANCES} to 'threads'"
    elif named not in ("", THREADS):
        why = f"{INSTANCES} is '{named}'"
    else:
        return THREADS, ""
    return kind, f"adopt() is not used: {why}"


def _has_adopt(path: str) -> bool:
    with suppress(OSError), open(path, "rb") as file:
        return b"def adopt(" in file.read()
    return False
