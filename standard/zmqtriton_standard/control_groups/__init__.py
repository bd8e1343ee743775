"""Control groups: the kernel enforces the memory and processor limits of models."""

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "control_groups",
    offers={
        "supervisor.process_groups": ".groups:prepare_control_groups",
    },
)
