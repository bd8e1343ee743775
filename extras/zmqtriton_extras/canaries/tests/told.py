"""Canaries of the model `m`, and what is told of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.supervisor.model_directory import PLAIN
from tests.supervisor.world import SupervisorHarness
from zmqtriton_floor import wire


def parameters(**values: str) -> str:
    return PLAIN + "".join(
        f' parameters {{ key: "canary_{name}" value {{ string_value: "{value}" }} }}'
        for name, value in values.items()
    )


def start_canary(world: SupervisorHarness, version: int = 2, **settings: Any) -> dict[str, Any]:
    """Begin a canary, which has to succeed."""
    settings = settings or {"weight": 10}
    return world.call("canary.start", {"model": "m", "version": version, **settings}).result


def told_split(world: SupervisorHarness, role: str = "grpc") -> wire.TrafficSplit:
    """The last division that was told to processes of a role."""
    return world.messages_to(role, wire.TrafficSplit)[-1]


def status(world: SupervisorHarness) -> dict[str, Any]:
    return world.call("canary.status", {"model": "m"}).result[0]


def serving(world: SupervisorHarness) -> list[int]:
    return sorted(n for n, v in world.core.models["m"].versions.items() if v.is_serving)


def count(
    world: SupervisorHarness,
    *versions: tuple[int, int, int, float],
    cancelled: int = 0,
    compute_ms: Mapping[int, int] | None = None,
    executing_s: Sequence[tuple[float, float]] = (),
) -> None:
    """Set what the broker has counted: version, successes, failures, mean in milliseconds.

    The others are of version 2: clients that have left, executions by their time, and the ages of
    the oldest and the newest execution of each instance.
    """
    world.model_stats = [
        {
            "name": "m",
            "version": str(version),
            "execution_count": 1,
            "inference_stats": {
                "success": {"count": succeeded, "ns": int(succeeded * mean_ms * 1e6)},
                "fail": {"count": failed, "ns": 0},
            },
            "zmqtriton": {
                **{
                    "pending": 0,
                    "unanswered": 0,
                    "sequences": 0,
                    "last_arrival_ns": 0,
                    "busy_ns": 0,
                },
                **{"direct_responses": 0, "brokered_responses": 0},
                "failures": {
                    "BACKEND": failed,
                    "CANCELED": 1000 + (cancelled if version == 2 else 0),
                    "REJECTED": 1000,
                },
                "trial": {
                    "request": {str(int(mean_ms * 1e6)): succeeded},
                    "compute": {
                        str(int(ms * 1e6)): number
                        for ms, number in (
                            compute_ms if version == 2 and compute_ms else {1: succeeded}
                        ).items()
                    },
                },
                "executing_ns": [
                    [int(oldest * 1e9), int(newest * 1e9)] for oldest, newest in executing_s
                ]
                if version == 2
                else [],
            },
        }
        for version, succeeded, failed, mean_ms in versions
    ]
