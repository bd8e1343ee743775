"""All metrics, pushed to an OpenTelemetry collector."""

from __future__ import annotations

from zmqtriton.sdk import AddOn, Offer, Option, Process

ADDON = AddOn(
    "otlp_metrics",
    needs=(
        "metrics",
        "tracing",
    ),
    title="Metrics",
    options=(
        Option(
            "otlp-metrics",
            str,
            "",
            "URL of an OpenTelemetry collector to which all metrics are pushed, over OTLP/HTTP.",
        ),
        Option(
            "otlp-metrics-interval-secs",
            int,
            0,
            "Seconds between pushes. 0: OTEL_METRIC_EXPORT_INTERVAL's, else 60.",
        ),
    ),
    process=Process(".process", on="otlp-metrics", title="Push of metrics", is_serving=True),
    offers={
        "options.check": Offer(".options:problem", on="otlp-metrics"),
        "metrics.text": Offer(".options:metrics", on="otlp-metrics"),
    },
)
