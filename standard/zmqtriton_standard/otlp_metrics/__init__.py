"""All metrics, pushed to an OpenTelemetry collector."""

from __future__ import annotations

from zmqtriton.sdk import AddOn, Process

ADDON = AddOn(
    "otlp_metrics",
    check=".options:problem",
    process=Process(".process", on="otlp-metrics", title="Push of metrics", is_serving=True),
    metrics=".options:metrics",
)
