"""Has the MPS daemon started for GPUs with several processes, and checks that these use it.

There is one daemon for all GPUs, so that a GPU has the same number for each process. Processes that
started before their GPU was shared are not clients until they are replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from zmqtriton.sdk.supervisor import (
    Blueprint,
    CoreParts,
    Feature,
    Generation,
    StubPlace,
)
from zmqtriton_extras.mps import Options, daemon, settings
from zmqtriton_extras.mps.settings import AUTO, GpuShare


class MpsDaemon(Feature):
    def __init__(self, core: CoreParts) -> None:
        super().__init__(core)
        self._is_on = core.policy.options_of(Options).mps == AUTO
        self._directory = daemon.directory_of()
        #: The daemon, without a guard until it has started; None if none is needed yet.
        self._daemon: daemon.Started | None = None
        #: Pids of the processes that the daemon has as clients.
        self._clients: tuple[int, ...] = ()
        #: Serial numbers of the processes that were started as clients.
        self._placed = set[int]()

    def place(
        self, generation: Generation, instance: StubPlace
    ) -> tuple[tuple[int, ...], Mapping[str, str]]:
        share: GpuShare | None = generation.blueprint.add_on_settings.get("mps")
        is_meant = share is not None or self._is_shared(generation, instance)
        if not self._is_on or not is_meant or instance.slot.kind != "GPU":
            return (), {}
        if settings.has_slices(generation.blueprint.config):  # the daemon serves whole GPUs only
            return (), {}
        if self._daemon is None:
            self._daemon = daemon.Started(None)
            self._plan.tell(self._start())
        self._placed.add(instance.serial)
        variables = daemon.variables(self._directory)
        if share is not None:
            variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(share.percent)
        if share is not None and share.memory:
            limit = f"{instance.slot.device}={share.memory}"
            variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = limit
        return (), variables

    def _is_shared(self, generation: Generation, instance: StubPlace) -> bool:
        """True if the instance is not the only one on its GPU, or will not be."""
        others = (one for one in self._on_gpus() if one.model != instance.model)
        on_gpu = [*(one.slot for one in others), *generation.planned_slots]
        places = [(slot.kind, slot.device) for slot in on_gpu]
        return places.count(("GPU", instance.slot.device)) > 1

    def _on_gpus(self) -> list[StubPlace]:
        generations = self._server.generations.values()
        instances = (one for generation in generations for one in generation.instances)
        return [one for one in instances if one.is_alive and one.slot.kind == "GPU"]

    async def _start(self) -> None:
        self._daemon = await self._plan.in_background(partial(daemon.start, self._directory))
        if self._daemon.problem:
            self._plan.log("E", f"{self._daemon.problem}; processes take turns on GPUs instead")

    def load_succeeded(self, blueprint: Blueprint) -> None:
        if self._daemon is not None:
            self._plan.tell(self._look())

    async def _look(self) -> None:
        self._clients = await self._plan.in_background(
            partial(daemon.read_clients, self._directory)
        )

    def stop(self) -> None:
        if self._daemon is not None and self._daemon.guard is not None:
            self._plan.in_background(partial(daemon.end, self._daemon.guard))

    def describe(self, counts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the instances that should be clients of the daemon, and whether they are."""
        problem = self._daemon.problem if self._daemon else ""
        rows = [
            {
                "model": one.model,
                "version": one.version,
                "instance": one.name,
                "gpu": one.slot.device,
                "is_client": one.pid in self._clients,
                "problem": problem,
            }
            for one in self._on_gpus()
            if one.serial in self._placed
        ]
        return {"mps": rows} if rows else {}
