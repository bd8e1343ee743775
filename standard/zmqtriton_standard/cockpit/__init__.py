"""The server for people, over HTTP: its pages, its API described, its state, operations on it."""

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "cockpit",
    # it describes the routes of all
    after=("*",),
    offers={
        "http.extension": ".pages:EXTENSION",
    },
)
