"""Operations on serving models: restarts, stacks of processes, and repositories."""

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "operations",
    offers={
        "supervisor.feature": (".operations:Operations", ".repositories:RepositoryRegistry"),
    },
)
