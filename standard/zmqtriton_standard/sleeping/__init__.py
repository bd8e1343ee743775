"""Sleep: models free their memory until they get requests."""

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "sleeping",
    offers={
        "supervisor.feature": ".sleeping:Sleeping",
    },
)
