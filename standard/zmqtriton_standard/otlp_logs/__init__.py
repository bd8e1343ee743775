"""The log, pushed to an OpenTelemetry collector."""

from __future__ import annotations

from zmqtriton.sdk import AddOn, Process

ADDON = AddOn(
    "otlp_logs",
    check=".options:problem",
    process=Process(".process", on="otlp-logs", title="Push of the log", is_serving=True),
    metrics=".options:metrics",
)
