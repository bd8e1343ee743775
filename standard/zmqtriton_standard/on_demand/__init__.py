"""Loading on demand: a model's first request loads it, and it is unloaded when it is idle."""

from zmqtriton.sdk import AddOn, Option

ADDON = AddOn(
    "on_demand",
    needs=("memory",),
    title="Model Repository",
    options=(
        Option(
            "unload-idle-after",
            float,
            0.0,
            "Idle seconds after which models loaded on demand are unloaded; 0 means never.",
            requires="load-on-demand",
        ),
        Option(
            "model-memory-budget",
            "zmqtriton.options.values:memory",
            0,
            "Memory of all model processes, such as 32G, beyond which models loaded on demand "
            "sleep or are evicted; 0 means no limit.",
            "size",
            requires="load-on-demand",
        ),
        Option(
            "gpu-memory-budget",
            "zmqtriton.options.values:gpu_memory",
            (),
            "Memory of all models on one GPU, such as 0:70G, beyond which models loaded on demand "
            "sleep or are evicted. May be repeated.",
            "gpu:size",
            repeats=True,
            requires="load-on-demand",
        ),
    ),
    offers={
        "supervisor.feature": ".loader:OnDemandLoader",
    },
)
