"""The needs of all loaded and loading instances: the rate limiter's resources, GPUs, descriptors.

A generation claims for its instances before they start, and is refused if one of them could never
execute. Only this check is made here; the broker distributes the resources. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from zmqtriton.config.resources import ResourceNeed, ResourcePool
from zmqtriton.reading.blueprint import InstanceSlot
from zmqtriton.supervisor.actions import Assignment
from zmqtriton.supervisor.settings import ServerInfo
from zmqtriton_floor.errors import Unavailable
from zmqtriton_floor.reasons import Kind

_GPU = "GPU"


class ResourceClaims:
    def __init__(self, server: ServerInfo) -> None:
        self._supply = ResourcePool(server.settings.broker.rate)
        self._claims: dict[int, list[ResourceNeed]] = {}
        self.gpu_limits = GpuLimits(server)
        self.instance_limit = InstanceLimit(server.max_instances)
        #: Places an instance of a generation; features do.
        self.place: Callable[[Any, Any], Assignment] = lambda generation, instance: Assignment()

    def claim(self, generation: int, places: Iterable[InstanceSlot]) -> None:
        """Claim for a generation, replacing its earlier claim.

        Raises InvalidArgument, and changes nothing, if the claims conflict; Unavailable if there
        are too many instances or a GPU is too full.
        """
        places = [*places]
        others = [d for number, ds in self._claims.items() if number != generation for d in ds]
        own = [ResourceNeed.from_json(place.resources) for place in places if place.resources]
        if self._supply.is_enabled:
            self._supply.check_satisfiable([*own, *others])
            self._claims[generation] = own
        self.gpu_limits.check(generation, places)
        self.instance_limit.claim(generation, len(places))

    def release(self, generation: int) -> None:
        """Release the claim of a generation that has no process any more."""
        self._claims.pop(generation, None)
        self.gpu_limits.forget_generation(generation)
        self.instance_limit.release(generation)

    def needs_for_broker(self, demand: str) -> str:
        """Return an instance's needs in the broker's form; "" without a rate limiter."""
        return demand if self._supply.is_enabled else ""


class InstanceLimit:
    """The number of instances that the server may have: each costs descriptors."""

    def __init__(self, maximum: float) -> None:
        self.maximum = maximum
        self._counts: dict[int, int] = {}
        self._total = 0
        #: The generations that end.
        self._leaving: set[int] = set()

    def claim(self, generation: int, instances: int) -> None:
        """Count the instances of a generation. Raises Unavailable if there would be too many."""
        others = self._total - self._counts.get(generation, 0)
        if others + instances > self.maximum:
            raise Unavailable(
                f"the limit of open files allows {self.maximum:g} instances; there are {others}, "
                f"and the load needs {instances} more (see ulimit -n, LimitNOFILE)"
            ).because(Kind.TOO_FEW_DESCRIPTORS, limit=int(self.maximum))
        self._counts[generation], self._total = instances, others + instances

    def is_room_coming(self, instances: int) -> bool:
        """True if these instances fit only once the ending generations are gone."""
        staying = self._total - sum(self._counts.get(number, 0) for number in self._leaving)
        return staying + instances <= self.maximum < self._total + instances

    def leave(self, generation: int) -> None:
        """Record that a generation is ending; its instances count until their processes end."""
        self._leaving.add(generation)

    def release(self, generation: int) -> None:
        """Forget a generation that has no process any more."""
        self._total -= self._counts.pop(generation, 0)
        self._leaving.discard(generation)


class GpuLimits:
    """`--model-load-gpu-limit`: the share of a GPU that may be in use when an instance loads.

    Part of `resources`. Restarted instances are not checked again: their model was admitted.
    """

    def __init__(self, server: ServerInfo) -> None:
        #: Limits by the number of the GPU.
        self._limits = dict(server.settings.model_load_gpu_limit)
        self._server = server
        #: The admitted instances by generation.
        self._admitted: dict[int, set[tuple[str, int]]] = {}

    def check(self, generation: int, places: Iterable[InstanceSlot]) -> None:
        """Raise Unavailable if a new instance would load on a GPU that is too full."""
        admitted = self._admitted.get(generation, set())
        new = {
            (place.name, place.device): place
            for place in places
            if place.kind == _GPU and (place.name, place.device) not in admitted
        }
        # Each GPU is asked once: what loads at the same time is not there yet.
        full = {gpu for gpu in {place.device for place in new.values()} if self._is_full(gpu)}
        for place in new.values():
            if place.device in full:
                raise Unavailable(
                    f"can not create model '{place.name}': memory limit set for GPU "
                    f"{place.device} has exceeded, model loading is rejected."
                ).because(Kind.GPU_FULL, gpu=place.device)
        self._admitted[generation] = admitted | new.keys()

    def _is_full(self, gpu: int) -> bool:
        limit = self._limits.get(gpu)
        used = None if limit is None else self._server.used_gpu_share(gpu)
        return used is not None and limit is not None and used > limit

    def forget_generation(self, generation: int) -> None:
        self._admitted.pop(generation, None)
