"""Models are loaded again: when operators say so, and when their files change."""

from __future__ import annotations

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "reloading",
    features=(".reloading:ReloadCalls", ".reloading:Reloader"),
)
