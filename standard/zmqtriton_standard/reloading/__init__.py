"""Models are loaded again: when operators say so, and when their files change."""

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "reloading",
    offers={
        "supervisor.feature": (".reloading:ReloadCalls", ".reloading:Reloader"),
    },
)
