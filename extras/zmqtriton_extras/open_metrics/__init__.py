"""The page of metrics in the form of OpenMetrics, for readers that accept it."""

from __future__ import annotations

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "open_metrics",
    needs=(
        "metrics",
        "tracing",
    ),
    offers={
        "metrics.page_form": ".form:OpenMetrics",
    },
)
