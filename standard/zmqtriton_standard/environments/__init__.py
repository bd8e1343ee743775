"""The Python environments of models: checks and makes them, in a child of the supervisor."""

from zmqtriton.sdk import AddOn, Process

ADDON = AddOn(
    "environments",
    process=Process(".", title="Environment", is_on_demand=True),
    offers={
        "diagnosis.environment": ".findings:problems",
        "diagnosis.chapters": ".findings:chapters",
    },
)
