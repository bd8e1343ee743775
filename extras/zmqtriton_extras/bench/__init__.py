"""How fast models are: `zmqtriton-ctl bench` asks a server, `zmqtriton simulate` a simulation."""

from __future__ import annotations

from zmqtriton.sdk import AddOn, Command

ADDON = AddOn(
    "bench",
    commands={
        "simulate": Command(
            ".simulation.command:run_simulate",
            "simulate directory ...          simulate batching settings under load",
        ),
    },
    ctl={"bench": ".command:bench"},
    after=("tools",),
)
