"""The needs of all loaded and loading instances: the rate limiter's resources, GPUs, descriptors.

A generation claims for its instances before they start, and is refused if one of them could never
execute. Only this check is made here; the broker shares the resources out. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from zmqtriton.config.resources import ResourceNeed, ResourcePool
from zmqtriton.supervisor.models.gpu_limits import GpuLimits
from zmqtriton.supervisor.models.instance import InstanceSlot
from zmqtriton.supervisor.models.instance_limit import InstanceLimit
from zmqtriton.supervisor.settings import Settings


class ResourceClaims:
    def __init__(
        self,
        settings: Settings,
        used_gpu_share: Callable[[int], float | None],
        max_instances: float,
    ) -> None:
        self._supply = ResourcePool(settings.broker.rate)
        self._claims: dict[int, list[ResourceNeed]] = {}
        self.gpu_limits = GpuLimits(settings.model_load_gpu_limit, used_gpu_share)
        self.instance_limit = InstanceLimit(max_instances)

    def claim(self, generation: int, places: Iterable[InstanceSlot]) -> None:
        """Claim for a generation, in place of its earlier claim.

        Raises InvalidArgument, and changes nothing, if the claims do not go together; Unavailable
        if there are too many instances or a GPU is too full.
        """
        places = [*places]
        others = [d for number, ds in self._claims.items() if number != generation for d in ds]
        own = [ResourceNeed.from_json(place.resources) for place in places if place.resources]
        if self._supply.is_enabled:
            self._supply.check_satisfiable([*own, *others])
            self._claims[generation] = own
        self.gpu_limits.check(generation, places)
        self.instance_limit.claim(generation, len(places))

    def claim_processes(self, generation: int, instances: int) -> None:
        """Claim for instances of which nothing else is known yet. Raises Unavailable."""
        self.instance_limit.claim(generation, instances)

    def leave(self, generation: int) -> None:
        """Take note that a generation ends; what it has claimed is free when it has ended."""
        self.instance_limit.leave(generation)

    def release(self, generation: int) -> None:
        """Release the claim of a generation that has no process any more."""
        self._claims.pop(generation, None)
        self.gpu_limits.forget_generation(generation)
        self.instance_limit.release(generation)

    def needs_for_broker(self, demand: str) -> str:
        """Return an instance's needs as the broker is told; "" if nothing limits it."""
        return demand if self._supply.is_enabled else ""
