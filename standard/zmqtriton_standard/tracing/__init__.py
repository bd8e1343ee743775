"""The tracing process: collects reports of other processes, assembles traces and exports them."""

from zmqtriton.sdk import AddOn, Process

ADDON = AddOn(
    "tracing",
    process=Process(".", name="tracer", title="Tracer", is_on_demand=True),
)
