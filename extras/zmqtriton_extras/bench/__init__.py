"""Measurements of models: `zmqtriton-ctl bench` of a server, `zmqtriton simulate` of a plan."""

from __future__ import annotations

from zmqtriton.sdk import AddOn, Command

ADDON = AddOn(
    "bench",
    needs=("ctl",),
    after=("tools",),
    commands={
        "simulate": Command(
            ".simulation.command:run_simulate",
            "simulate directory ...          simulate batching settings under load",
        ),
    },
    ctl={"bench": ".command:bench"},
    offers={
        "ctl.group": {"Send requests": "bench"},
    },
)
