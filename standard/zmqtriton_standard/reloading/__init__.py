"""Models are loaded again: when operators say so, and when their files change."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from zmqtriton.sdk import AddOn, Option


class ReloadingOptions(NamedTuple):
    reload: Annotated[
        bool, Option("Load models again when their files change; for development.")
    ] = False


ADDON = AddOn(
    "reloading",
    title="Model Repository",
    options=ReloadingOptions,
    offers={
        "supervisor.feature": (".reloading:ReloadCalls", ".reloading:Reloader"),
    },
)
