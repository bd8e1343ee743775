"""Restarts, stacks and repositories: operations on models while they serve."""

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "operations",
    offers={
        "supervisor.feature": (".operations:Operations", ".repositories:RepositoryRegistry"),
    },
)
