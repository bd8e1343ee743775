"""The log, pushed to an OpenTelemetry collector."""

from __future__ import annotations

from zmqtriton.sdk import AddOn, Offer, Option, Process

ADDON = AddOn(
    "otlp_logs",
    title="Logging",
    needs=(
        "otlp_metrics",
        "metrics",
        "tracing",
    ),
    options=(
        Option(
            "otlp-logs",
            str,
            "",
            "URL of an OpenTelemetry collector to which the log is pushed, too, over OTLP/HTTP.",
        ),
    ),
    process=Process(".process", on="otlp-logs", title="Push of the log", is_serving=True),
    offers={
        "options.check": Offer(".options:problem", on="otlp-logs"),
        "metrics.text": Offer(".options:metrics", on="otlp-logs"),
    },
)
