"""Models that are loaded by the first request for them, and unloaded when they idle."""

from __future__ import annotations

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "on_demand",
    feature=".loader:OnDemandLoader",
)
