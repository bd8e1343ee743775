"""Draining: a model, a client or a server takes no new requests, and finishes the current ones."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from zmqtriton.sdk import AddOn, Option


class DrainingOptions(NamedTuple):
    exit_drain_secs: Annotated[
        int,
        Option(
            "Seconds before a shutdown in which the server is not ready but still answers, so that "
            "load balancers go elsewhere."
        ),
    ] = 0


ADDON = AddOn(
    "draining",
    title="Server",
    options=DrainingOptions,
    offers={
        "supervisor.feature": ".draining:Draining",
    },
)
