"""Draining: a model, a client or a server stops taking requests, and ends those that it has."""

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
