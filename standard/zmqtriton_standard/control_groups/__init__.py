"""Control groups, by which the kernel keeps models to their limits."""

from __future__ import annotations

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "control_groups",
    process_groups=".groups:prepare_control_groups",
)
