"""Models that give their memory back while nobody asks for them."""

from __future__ import annotations

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "sleeping",
    features=(".sleeping:Sleeping",),
)
