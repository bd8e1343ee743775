"""The rate limiter's resources: what instances need to execute, and how much there is.

The supervisor uses it to refuse loads that could never execute, the broker to share out. Only
arithmetic: knows neither processes nor requests.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.settings.broker import RateLimits

#: Device of a resource that all devices share. In an option, it stands for each device.
NO_DEVICE = -1

#: Name and device.
ResourceKey = tuple[str, int]


class ResourceNeed(NamedTuple):
    """The needs of one instance for each execution, and its priority: 1 is the highest."""

    amounts: Mapping[ResourceKey, int]
    priority: int

    def to_json(self) -> str:
        needs = [[name, device, count] for (name, device), count in self.amounts.items()]
        return json.dumps({"needs": needs, "priority": self.priority})

    @classmethod
    def from_json(cls, document: str) -> ResourceNeed:
        fields = json.loads(document)
        needs = {(name, device): count for name, device, count in fields["needs"]}
        return cls(needs, fields["priority"])


def needs_of_group(group: Any, device: int) -> ResourceNeed:
    """Return an instance's needs by its group in the configuration; duplicates count once."""
    needs: dict[ResourceKey, int] = {}
    for resource in group.rate_limiter.resources:
        if resource.count:
            key = (resource.name, NO_DEVICE if getattr(resource, "global") else device)
            needs[key] = max(needs.get(key, 0), resource.count)
    return ResourceNeed(needs, max(1, group.rate_limiter.priority))


class ResourcePool:
    """The amount of a resource: set by the operator, or else the largest need."""

    def __init__(self, limits: RateLimits) -> None:
        self.is_enabled = limits.is_on
        self._configured_amounts = {
            (name, device): max(0, count) for name, count, device in limits.resources
        }

    def limits(self, demands: Iterable[ResourceNeed]) -> dict[ResourceKey, int]:
        """Return the limit of each needed resource."""
        maxima: dict[ResourceKey, int] = {}
        for demand in demands:
            for key, count in demand.amounts.items():
                maxima[key] = max(maxima.get(key, 0), count)
        return {key: self._limit(*key) for key in maxima} if self._configured_amounts else maxima

    def check_satisfiable(self, demands: Iterable[ResourceNeed]) -> None:
        """Raise InvalidArgument, with Triton's texts, if one of the needs could never be met."""
        demands = list(demands)
        limits = self.limits(demands)
        for name, device in limits:
            if device != NO_DEVICE and (name, NO_DEVICE) in limits:
                raise InvalidArgument(
                    f'Resource "{name}" is present as both global and device-specific resource in '
                    "the model configuration."
                )
        for key, limit in limits.items():
            needed = max(demand.amounts.get(key, 0) for demand in demands)
            if limit < needed:
                raise InvalidArgument(
                    f'Resource count for "{key[0]}" is limited to {limit} which will prevent '
                    "scheduling of one or more model instances, the minimum required count is "
                    f"{needed}"
                )

    def _limit(self, name: str, device: int) -> int:
        return max(
            (
                count
                for (resource, place), count in self._configured_amounts.items()
                if resource == name and (device == NO_DEVICE or place in (device, NO_DEVICE))
            ),
            default=0,
        )
