"""Control groups for the limits on memory and processors of models; a report of all limits."""

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "control_groups",
    offers={
        "supervisor.feature": ".report:QuotaReport",
        "supervisor.process_groups": ".groups:prepare_control_groups",
    },
)
