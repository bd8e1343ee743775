"""Canaries: versions that are tried beside the one that serves, then promoted or aborted."""

from __future__ import annotations

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "canaries",
    model_settings=".settings",
    feature=".registry:CanaryRegistry",
    ctl={"canary": ".ctl:canary"},
    division=".requests:division",
    needs=("capture",),
)
