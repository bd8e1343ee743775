"""The instances that a configuration asks for."""

from __future__ import annotations

from typing import Any

from zmqtriton.config.instances import (
    apply_group_defaults,
    instance_count_problems,
    instance_specs,
    set_instance_count,
)
from zmqtriton.config.model_config import ModelHost
from zmqtriton.reading.blueprint import InstanceSlot, Scale


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
    draft = type(config)()
    draft.CopyFrom(config)
    apply_group_defaults(draft, host.gpus)
    slots = () if any(instance_count_problems(draft)) else instance_slots(draft)
    return slots or (InstanceSlot(f"{config.name}_0", "CPU", 0),)


def scaled_config(config: Any, scale: Scale) -> Any:
    """Return a copy of the configuration that asks for this number of instances."""
    scaled = type(config)()
    scaled.CopyFrom(config)
    set_instance_count(scaled, scale.instances, scale.group)
    return scaled
