"""`--model-load-gpu-limit`: how much of a GPU may be in use when an instance begins to load.

Part of `resources`. `used_share` reports the use, so there is no I/O here. Restarted instances are
not checked again: their model was admitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from zmqtriton.supervisor.models.instance import InstanceSlot
from zmqtriton_floor.errors import Unavailable
from zmqtriton_floor.reasons import Kind

_GPU = "GPU"


class GpuLimits:
    def __init__(
        self, limits: Iterable[tuple[int, float]], used_share: Callable[[int], float | None]
    ) -> None:
        """Set up; `used_share` returns the share of a GPU's memory in use, from 0 to 1.

        It returns None if that is unknown.
        """
        #: By the number of the GPU.
        self._limits = dict(limits)
        self._used_share = used_share
        #: The admitted instances by generation.
        self._admitted: dict[int, set[tuple[str, int]]] = {}

    def check(self, generation: int, places: Iterable[InstanceSlot]) -> None:
        """Raise Unavailable if a new instance is to load on a GPU that is too full."""
        if not self._limits:
            return
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
                text = (
                    f"can not create model '{place.name}': memory limit set for GPU "
                    f"{place.device} has exceeded, model loading is rejected."
                )
                raise Unavailable(text).because(Kind.GPU_FULL, gpu=place.device)
        self._admitted[generation] = admitted | new.keys()

    def _is_full(self, gpu: int) -> bool:
        limit = self._limits.get(gpu)
        used = None if limit is None else self._used_share(gpu)
        return used is not None and limit is not None and used > limit

    def forget_generation(self, generation: int) -> None:
        self._admitted.pop(generation, None)
