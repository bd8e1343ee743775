"""Draining: a model, a client or a server stops taking requests, and ends those that it has."""

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "draining",
    offers={
        "supervisor.feature": ".draining:Draining",
    },
)
