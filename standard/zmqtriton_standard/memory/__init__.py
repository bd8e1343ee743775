"""The memory of models, on the machine and on GPUs, for features that have budgets of it."""

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "memory",
    needs=(
        "metrics",
        "on_demand",
    ),
)
