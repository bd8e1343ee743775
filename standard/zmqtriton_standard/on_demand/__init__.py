"""Loading on demand: a model's first request loads it, and it is unloaded when it is idle."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from zmqtriton.sdk import AddOn, Option


class OnDemandOptions(NamedTuple):
    unload_idle_after: Annotated[
        float,
        Option(
            "Idle seconds after which models loaded on demand are unloaded; 0 means never.",
            requires="load-on-demand",
        ),
    ] = 0.0
    model_memory_budget: Annotated[
        int,
        Option(
            "Memory of all model processes, such as 32G, beyond which models loaded on demand "
            "sleep or are evicted; 0 means no limit.",
            read="zmqtriton.options.values:memory",
            metavar="size",
            requires="load-on-demand",
        ),
    ] = 0
    gpu_memory_budget: Annotated[
        tuple[tuple[int, int], ...],
        Option(
            "Memory of all models on one GPU, such as 0:70G, beyond which models loaded on demand "
            "sleep or are evicted. May be repeated.",
            read="zmqtriton.options.values:gpu_memory",
            metavar="gpu:size",
            requires="load-on-demand",
        ),
    ] = ()


ADDON = AddOn(
    "on_demand",
    needs=("memory",),
    title="Model Repository",
    options=OnDemandOptions,
    offers={
        "supervisor.feature": ".loader:OnDemandLoader",
    },
)
