"""The history of the last hours, which the page and the status draw."""

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "history",
    needs=(
        "memory",
        "metrics",
    ),
    offers={
        "metrics.samples": ".sampler:Sampler",
        "supervisor.feature": ".calls:HistoryCalls",
    },
)
