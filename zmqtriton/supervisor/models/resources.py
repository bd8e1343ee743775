"""What all instances that are loaded, or are being loaded, need of the rate limiter's resources,
and whether the GPUs that they want are too full.

A generation claims for its instances before they start, and is refused where one of them could
never execute. The broker shares out; here it is only checked. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from zmqtriton.config.resources import ResourceNeed, ResourcePool
from zmqtriton.supervisor.models.gpu_limits import GpuLimits
from zmqtriton.supervisor.models.instance import InstanceSlot


class ResourceClaims:
    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._supply = ResourcePool(settings)
        self._claims: dict[int, list[ResourceNeed]] = {}
        self.gpu_limits = GpuLimits(settings)

    def claim(self, generation: int, places: Iterable[InstanceSlot]) -> None:
        """In place of what it has claimed before. Raises InvalidArgument, and changes nothing,
        where that does not go together; Unavailable where a GPU is too full."""
        places = [*places]
        others = [d for number, ds in self._claims.items() if number != generation for d in ds]
        own = [ResourceNeed.from_json(place.resources) for place in places if place.resources]
        if self._supply.is_enabled:
            self._supply.check_satisfiable([*own, *others])
            self._claims[generation] = own
        self.gpu_limits.check(generation, places)

    def release(self, generation: int) -> None:
        """No process of it is left."""
        self._claims.pop(generation, None)
        self.gpu_limits.forget_generation(generation)

    def needs_for_broker(self, demand: str) -> str:
        """What the broker is told of an instance; "": nothing limits it."""
        return demand if self._supply.is_enabled else ""
