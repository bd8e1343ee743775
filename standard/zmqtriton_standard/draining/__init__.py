"""Draining: a model, a client or a server takes no new requests, and finishes the current ones."""

from zmqtriton.sdk import AddOn, Option

ADDON = AddOn(
    "draining",
    title="Server",
    options=(
        Option(
            "exit-drain-secs",
            int,
            0,
            "Seconds before a shutdown in which the server is not ready but still answers, so that "
            "load balancers go elsewhere.",
        ),
    ),
    offers={
        "supervisor.feature": ".draining:Draining",
    },
)
