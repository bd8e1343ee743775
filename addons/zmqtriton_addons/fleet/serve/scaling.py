"""The number of servers that a group should have, by their load. Pure: Serve waits and acts.

The demand of a server is the share of its instances that execute, and what waits for them: as many
requests as may wait for each instance count as a whole server.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

#: The name of the metric that replicas report.
DEMAND = "zmqtriton_demand"
#: Requests that may wait for each ready instance.
_WAITING = 4.0
#: The demand that each server should have: room for what comes before another one is there.
_TARGET = 2 / 3
#: Serve adds servers after this time of too much demand, and takes them away after that of too
#: little, since a start costs more than some idle time.
DELAYS = {"upscale_delay_s": 10.0, "downscale_delay_s": 120.0}


def demand_of(figures: Mapping[str, Any]) -> float:
    """Return the demand of a server from its answer to /v2/load."""
    instances = sum(int(entry["instances"]["ready"]) for entry in figures.get("models", ()))
    waiting = float(figures.get("queued", 0)) / max(1, instances) / _WAITING
    return float(figures.get("utilization", 0.0)) + waiting


def wished_servers(demands: Sequence[float], servers: int) -> int:
    """Return how many servers the demand on so many needs; servers without a report are as busy."""
    mean = sum(demands) / len(demands)
    return max(1, math.ceil(mean * servers / _TARGET - 1e-9))


def decide(context: Any) -> tuple[int, dict[str, Any]]:
    """Return the number of replicas: a policy of Ray Serve's autoscaling."""
    metrics = context.aggregated_metrics or {}
    demands = list(metrics.get(DEMAND, {}).values())
    if not demands:
        return context.target_num_replicas, {}
    # those that still start carry none of it
    return wished_servers(demands, len(context.running_replicas)), {}
