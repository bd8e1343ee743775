"""Performs a rollout, step by step."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from zmqtriton_addons.fleet.servers.node_service import NodeService, ask
from zmqtriton_addons.fleet.servers.nodes import Node
from zmqtriton_addons.fleet.servers.rollout import Action, Rollout
from zmqtriton_floor.errors import DeadlineExceeded

_LOOK_EVERY_S = 0.2
_WORDS = {
    Action.DRAIN: "draining",
    Action.LOAD: "loading",
    Action.UNDRAIN: "undraining",
    Action.AWAIT: "waiting until it is ready",
}


class Limits(NamedTuple):
    """The time that a server has, in seconds."""

    drain_within_s: float
    ready_within_s: float


def perform(
    plan: Rollout,
    services: Mapping[Node, NodeService],
    model: str,
    limits: Limits,
    tell: Callable[[str], None],
) -> None:
    """Take each step of the plan, and tell of it before."""
    actions: dict[Action, Callable[[NodeService], object]] = {
        Action.DRAIN: lambda service: service.drain(model, limits.drain_within_s),
        Action.LOAD: lambda service: service.load(model),
        Action.UNDRAIN: lambda service: service.undrain(model),
        Action.AWAIT: lambda service: _await_readiness(service, model, limits.ready_within_s),
    }
    while (step := plan.next_step) is not None:
        tell(f"{step.node.http}: {_WORDS[step.action]}")
        reply = ask(services[step.node], actions[step.action])
        if reply.problem:
            plan.fail(f"{step.node.http}: {reply.problem}")
        else:
            plan.succeed()


def _await_readiness(service: NodeService, model: str, within_s: float) -> None:
    """Return when the model is ready. Raises DeadlineExceeded."""
    end_s = time.monotonic() + within_s
    while not service.is_ready(model):
        if time.monotonic() > end_s:
            raise DeadlineExceeded(f"'{model}' was not ready within {within_s:g} s")
        time.sleep(_LOOK_EVERY_S)
