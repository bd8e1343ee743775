"""Control groups: the kernel enforces the memory and processor limits of models."""

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "control_groups",
    process_groups=".groups:prepare_control_groups",
)
