"""The Pythons of models: checked, unpacked and built, in a process that the supervisor starts."""

from zmqtriton.sdk import AddOn, Process

ADDON = AddOn(
    "environments",
    process=Process(".", title="Environment", is_on_demand=True),
    offers={
        "diagnosis.environment": ".findings:problems",
        "diagnosis.chapters": ".findings:chapters",
    },
)
