"""All metrics, pushed to an OpenTelemetry collector."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from zmqtriton.sdk import AddOn, Offer, Option, Process


class OtlpMetricsOptions(NamedTuple):
    otlp_metrics: Annotated[
        str,
        Option(
            "URL of an OpenTelemetry collector to which all metrics are pushed, over OTLP/HTTP."
        ),
    ] = ""
    otlp_metrics_interval_secs: Annotated[
        int, Option("Seconds between pushes. 0: OTEL_METRIC_EXPORT_INTERVAL's, else 60.")
    ] = 0


ADDON = AddOn(
    "otlp_metrics",
    needs=(
        "metrics",
        "tracing",
    ),
    title="Metrics",
    options=OtlpMetricsOptions,
    process=Process(".process", on="otlp-metrics", title="Push of metrics", is_serving=True),
    offers={
        "options.check": Offer(".options:problem", on="otlp-metrics"),
        "metrics.text": Offer(".options:metrics", on="otlp-metrics"),
    },
)
