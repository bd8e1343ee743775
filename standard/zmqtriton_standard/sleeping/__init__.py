"""Sleep: models give their memory back until they are asked for."""

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "sleeping",
    offers={
        "supervisor.feature": ".sleeping:Sleeping",
    },
)
