"""The parameters of a model that mean something to this server, checked all together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zmqtriton.config.autoscale import autoscale_problems
from zmqtriton.config.canaries import canary_problems
from zmqtriton.config.errors import Problem
from zmqtriton.config.parameters import parameter_problems
from zmqtriton.config.quotas import quota_problems


def own_parameter_problems(config: Any) -> Iterator[Problem]:
    """Return values that cannot be meant."""
    yield from parameter_problems(config)
    yield from quota_problems(config)
    yield from canary_problems(config)
    yield from autoscale_problems(config)
