"""The plan of a rollout: one server after the other, until the first failure. Does no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from zmqtriton_addons.fleet.servers.nodes import Node


class Action(Enum):
    DRAIN = "drain"
    LOAD = "load"
    UNDRAIN = "undrain"
    AWAIT = "await"  # until the model is ready


class Step(NamedTuple):
    action: Action
    node: Node


class Outcome(Enum):
    """The result of a rollout on one server."""

    NEW = "has the new version"
    OLD = "has the old version"  # it was not its turn
    REFUSED = "failed to load it and goes on with the old version"
    UNREADY = "has the new version, which is not ready"
    DRAINED = "is still drained"  # it could not be undrained


class Rollout:
    """Plans the next step by the outcome of the last one."""

    def __init__(self, nodes: Sequence[Node], *, drains: bool) -> None:
        self._plan = [Action.LOAD, Action.AWAIT]
        if drains:
            self._plan = [Action.DRAIN, Action.LOAD, Action.UNDRAIN, Action.AWAIT]
        self._waiting = list(nodes)
        self._left: list[Action] = []
        self._node: Node | None = None
        self.outcomes = dict.fromkeys(nodes, Outcome.OLD)
        #: Why it stopped; "" if it did not.
        self.reason = ""

    @property
    def next_step(self) -> Step | None:
        """The step to take now; None at the end."""
        if not self._left and self._waiting and not self.reason:
            self._node, self._left = self._waiting.pop(0), list(self._plan)
        if not self._left or self._node is None:
            return None
        return Step(self._left[0], self._node)

    def succeed(self) -> None:
        """Take note that the step was taken."""
        action = self._left.pop(0)
        assert self._node is not None
        if self.reason:
            return  # this was to undo something
        if action is Action.LOAD:
            self.outcomes[self._node] = Outcome.UNREADY
        elif action is Action.AWAIT:
            self.outcomes[self._node] = Outcome.NEW

    def next_steps(self, model: str) -> list[str]:
        """Return what to do after a failure, as commands for some of the servers."""
        servers = {
            outcome: [node.http for node, each in self.outcomes.items() if each is outcome]
            for outcome in Outcome
        }
        steps = []
        if rest := [*servers[Outcome.REFUSED], *servers[Outcome.UNREADY], *servers[Outcome.OLD]]:
            steps.append(f"to go on, mend the model, then: {_command(rest, 'rollout', model)}")
        if changed := [*servers[Outcome.NEW], *servers[Outcome.UNREADY]]:
            steps.append(
                f"to go back, restore its files, then: {_command(changed, 'rollout', model)}"
            )
        if drained := servers[Outcome.DRAINED]:
            steps.append(f"to end the drain: {_command(drained, 'undrain', model)}")
        return steps

    def fail(self, reason: str) -> None:
        """Take note that the step has failed: no other server is touched."""
        action = self._left.pop(0)
        assert self._node is not None
        may_be_drained = action in (Action.DRAIN, Action.LOAD) and Action.UNDRAIN in self._left
        if action is Action.UNDRAIN:
            self.outcomes[self._node] = Outcome.DRAINED
        elif action is Action.LOAD:
            self.outcomes[self._node] = Outcome.REFUSED
        self.reason = self.reason or reason
        self._left = [Action.UNDRAIN] if may_be_drained else []


def _command(servers: Sequence[str], verb: str, model: str) -> str:
    chosen = "".join(f" --on {server}" for server in servers)
    return f"zmqtriton-ctl fleet{chosen} {verb} {model}"
