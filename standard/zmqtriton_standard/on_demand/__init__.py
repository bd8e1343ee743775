"""Loading on demand: a model's first request loads it, and it is unloaded when it is idle."""

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "on_demand",
    offers={
        "supervisor.feature": ".loader:OnDemandLoader",
    },
)
