"""The number of servers that a load needs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from zmqtriton_extras.fleet.serve import groups


def figures(queued: int = 0, utilization: float = 0.0, instances: int = 1) -> dict[str, Any]:
    models = [{"instances": {"ready": instances, "all": instances}}]
    return {"queued": queued, "utilization": utilization, "models": models}


def test_what_waits_counts_beside_what_executes() -> None:
    assert groups.demand_of(figures(utilization=0.5)) == 0.5
    assert groups.demand_of(figures(queued=8, utilization=1.0, instances=2)) == 2.0
    assert groups.demand_of({"queued": 5, "models": []}) == 1.25, "one instance at least"


@pytest.mark.parametrize(
    ("demands", "servers", "wished"),
    [
        ([0.0, 0.0], 2, 1),
        ([0.6, 0.7], 2, 2),
        ([1.0, 1.0], 2, 3),
        ([2.0], 1, 3),
        ([1.0], 2, 3),  # the other one has not reported yet, and is like this one
        ([2 / 3] * 6, 6, 6),
    ],
)
def test_each_server_should_have_room(demands: list[float], servers: int, wished: int) -> None:
    assert wished == groups.wished_servers(demands, servers)


def context(demands: dict[str, float] | None, running: int, target: int) -> SimpleNamespace:
    metrics = None if demands is None else {groups.DEMAND: demands}
    return SimpleNamespace(
        aggregated_metrics=metrics, running_replicas=["r"] * running, target_num_replicas=target
    )


def test_the_policy_reads_what_replicas_report() -> None:
    assert groups.decide(context({"a": 2.0, "b": 0.0}, 2, 2)) == (3, {})
    assert groups.decide(context(None, 2, 5)) == (5, {}), "nothing is known"


def test_servers_that_still_start_ask_for_no_more() -> None:
    assert groups.decide(context({"a": 2.0}, 1, 3)) == (3, {})
