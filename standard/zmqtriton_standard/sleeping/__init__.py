"""Sleep: models give their memory back until they are asked for."""

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "sleeping",
    feature=".sleeping:Sleeping",
)
