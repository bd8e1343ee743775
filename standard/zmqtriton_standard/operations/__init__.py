"""Operations on serving models: restarts, stacks, repositories, and connections."""

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "operations",
    offers={
        "supervisor.feature": (
            ".connections:ConnectionCalls",
            ".operations:Operations",
            ".repositories:RepositoryRegistry",
        ),
    },
)
