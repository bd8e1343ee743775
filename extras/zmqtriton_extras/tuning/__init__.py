"""`zmqtriton-ctl tune`: finds instances, batch and delay of a model by trial."""

from __future__ import annotations

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "tuning",
    needs=("bench", "capture", "ctl", "functions"),
    ctl={"tune": ".command:tune"},
    offers={"ctl.group": {"Send requests": "tune"}},
)
