"""Performs a rollout, step by step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

from zmqtriton_addons.fleet.servers.node_service import NodeService, ask
from zmqtriton_addons.fleet.servers.nodes import Node
from zmqtriton_floor.errors import DeadlineExceeded


class Action(Enum):
    DRAIN = "draining"
    LOAD = "loading"
    UNDRAIN = "undraining"
    AWAIT = "waiting until it is ready"


class Outcome(Enum):
    """The result of a rollout on one server."""

    NEW = "has the new version"
    OLD = "has the old version"  # it was not its turn
    REFUSED = "failed to load it and goes on with the old version"
    UNREADY = "has the new version, which is not ready"
    DRAINED = "is still drained"  # it could not be undrained


class Rollout(NamedTuple):
    """The outcome on each server, and the reason of a stop."""

    outcomes: dict[Node, Outcome]
    #: "" if all servers have the new version.
    reason: str

    def next_steps(self, model: str) -> list[str]:
        """Return what to do after a failure, as commands for some of the servers."""
        purposes = (
            ("to go on, mend the model, then", "rollout", "REFUSED UNREADY OLD"),
            ("to go back, restore its files, then", "rollout", "NEW UNREADY"),
            ("to end the drain", "undrain", "DRAINED"),
        )
        steps = []
        for purpose, verb, names in purposes:
            servers = [
                n for name in names.split() for n, o in self.outcomes.items() if o.name == name
            ]
            if servers:
                chosen = "".join(f" --on {node.http}" for node in servers)
                steps.append(f"{purpose}: zmqtriton-ctl fleet{chosen} {verb} {model}")
        return steps


def roll(nodes: Sequence[Node], take: Callable[[Action, Node], str], *, drains: bool) -> Rollout:
    """Load a model on each server; `take` takes a step, and returns the reason if it fails."""
    outcomes = dict.fromkeys(nodes, Outcome.OLD)
    for node in nodes:
        reason = take(Action.DRAIN, node) if drains else ""
        if not reason:
            reason = take(Action.LOAD, node)
            outcomes[node] = Outcome.REFUSED if reason else Outcome.UNREADY
        # also a server that goes on with the old version
        if drains and (refusal := take(Action.UNDRAIN, node)):
            reason = reason or refusal
            outcomes[node] = Outcome.DRAINED
        reason = reason or take(Action.AWAIT, node)
        if reason:
            return Rollout(outcomes, reason)
        outcomes[node] = Outcome.NEW
    return Rollout(outcomes, "")


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
