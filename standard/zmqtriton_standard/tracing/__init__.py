"""Traces: their settings, and the process that collects reports, assembles and exports traces."""

from zmqtriton.sdk import AddOn, Process

ADDON = AddOn(
    "tracing",
    process=Process(".", name="tracer", title="Tracer", is_on_demand=True),
    offers={
        "supervisor.feature": ".settings:TraceSettingsFeature",
    },
)
