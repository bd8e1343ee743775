"""Scaling: the number of instances of a model, set by an operator or by its load."""

from zmqtriton.sdk import AddOn, Parameter

ADDON = AddOn(
    "scaling",
    needs=("memory",),
    title="Autoscaling",
    parameters={
        "autoscale_max_instances": Parameter(
            "1 to 1024, or `cores`", "", "Upper bound of the instances, which follow the load."
        ),
        "autoscale_min_instances": Parameter("1 to 1024", "1", "Lower bound of the instances."),
        "autoscale_queue_milliseconds": Parameter(
            "above 0", "50", "There are more instances when requests would wait for longer."
        ),
        "autoscale_down_after_seconds": Parameter(
            "above 0", "30", "Time of spare capacity before the number of instances falls."
        ),
    },
    offers={
        "models.settings": ".limits",
        "supervisor.feature": ".autoscaler:Autoscaler",
    },
)
