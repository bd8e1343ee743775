"""Affinity: requests that share something go to the instance that has it in its cache.

A step of frontends (`step.py`) makes a number from the part of a request that the model's
configuration names (`rule.py`); the broker (`placement.py`) finds the instance of each number.
"""

from __future__ import annotations

from zmqtriton.sdk import AddOn, Parameter

ADDON = AddOn(
    "affinity",
    title="Affinity",
    parameters={
        "AFFINITY": Parameter(
            "`header:NAME`, `parameter:NAME`, or `input:NAME` with the number of its first bytes",
            "",
            "Requests that are equal in this go to the same instance.",
        ),
        "AFFINITY_BUSIER_BY": Parameter(
            "1 to 1000000",
            "4, or `max_batch_size` if that is more and batches are dynamic",
            "They go to the idlest instance when theirs has so many requests more.",
        ),
    },
    offers={
        "models.problems": ".problems:affinity_problems",
        "diagnosis.config": ".problems:affinity_warnings",
        "broker.placement": {"AFFINITY": ".placement:placement_of"},
        "requests.steps_of_model": ".step:steps_of",
    },
)
