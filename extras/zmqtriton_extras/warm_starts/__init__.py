"""Warm starts: instances are forked from a process that has imported the packages of models."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from zmqtriton.sdk import AddOn, Option


class WarmStartOptions(NamedTuple):
    warm_starts: Annotated[
        str,
        Option(
            "Keep a spare process for each Python environment, which has imported the packages of "
            "its models and forks their next instances: auto (if 4 GiB of memory are available, "
            "and the imports take long), on (if 1 GiB is) or off.",
            metavar="mode",
            read=".mode:read",
        ),
    ] = "auto"


ADDON = AddOn(
    "warm_starts",
    needs=("memory",),
    title="Model Repository",
    options=WarmStartOptions,
    offers={
        "supervisor.feature": ".feature:WarmStarts",
        "diagnosis.model": ".explaining",
    },
)
