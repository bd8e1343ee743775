"""The log, pushed to an OpenTelemetry collector."""

from __future__ import annotations

from zmqtriton.sdk import AddOn, Option, Process

ADDON = AddOn(
    "otlp_logs",
    options=(
        Option(
            "otlp-logs",
            str,
            "",
            "URL of an OpenTelemetry collector to which the log is pushed, too, over OTLP/HTTP.",
        ),
    ),
    title="Logging",
    check=".options:problem",
    process=Process(".process", on="otlp-logs", title="Push of the log", is_serving=True),
    metrics=".options:metrics",
    needs=("otlp_metrics",),
)
