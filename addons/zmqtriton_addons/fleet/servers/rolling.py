"""Performs a rollout, step by step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from zmqtriton_addons.fleet.servers.node_service import NodeService, ask
from zmqtriton_addons.fleet.servers.nodes import Node
from zmqtriton_addons.fleet.servers.rollout import Action, Rollout, roll
from zmqtriton_floor.errors import DeadlineExceeded

_LOOK_EVERY_S = 0.2


def perform(
    services: Sequence[NodeService],
    model: str,
    tell: Callable[[str], None],
    *,
    drain_within_s: float | None,
    ready_within_s: float,
) -> Rollout:
    """Load a model on each server, and tell of each step before; drain it before within a limit."""
    by_node = {service.node: service for service in services}
    actions: dict[Action, Callable[[NodeService], object]] = {
        Action.DRAIN: lambda service: service.drain(model, drain_within_s),
        Action.LOAD: lambda service: service.load(model),
        Action.UNDRAIN: lambda service: service.undrain(model),
        Action.AWAIT: lambda service: _await_readiness(service, model, ready_within_s),
    }

    def take(action: Action, node: Node) -> str:
        tell(f"{node.http}: {action.value}")
        problem = ask(by_node[node], actions[action]).problem
        return problem and f"{node.http}: {problem}"

    return roll(list(by_node), take, drains=drain_within_s is not None)


def _await_readiness(service: NodeService, model: str, within_s: float) -> None:
    """Return when the model is ready. Raises DeadlineExceeded."""
    end_s = time.monotonic() + within_s
    while not service.is_ready(model):
        if time.monotonic() > end_s:
            raise DeadlineExceeded(f"'{model}' was not ready within {within_s:g} s")
        time.sleep(_LOOK_EVERY_S)
