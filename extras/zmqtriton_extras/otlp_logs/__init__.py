"""The log, pushed to an OpenTelemetry collector."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from zmqtriton.sdk import AddOn, Offer, Option, Process


class OtlpLogsOptions(NamedTuple):
    otlp_logs: Annotated[
        str,
        Option(
            "URL of an OpenTelemetry collector to which the log is pushed, too, over OTLP/HTTP."
        ),
    ] = ""


ADDON = AddOn(
    "otlp_logs",
    title="Logging",
    needs=("otlp_metrics", "metrics", "tracing"),
    options=OtlpLogsOptions,
    process=Process(".process", on="otlp-logs", title="Push of the log", is_serving=True),
    offers={
        "options.check": Offer(".options:problem", on="otlp-logs"),
        "metrics.text": Offer(".options:metrics", on="otlp-logs"),
    },
)
