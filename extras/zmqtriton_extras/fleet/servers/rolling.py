"""Performs a rollout over HTTP, step by step, on one server of a fleet after the other."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

from zmqtriton.sdk.process import NoServerError
from zmqtriton.sdk.wire import ZmqTritonError, errors
from zmqtriton_extras.fleet.servers.nodes import Node
from zmqtriton_standard.ctl.http_service import Answer, HttpService, RefusedRequest

Found = TypeVar("Found")

#: Servers that are asked at once.
_MAX_AT_ONCE = 32
_NOT_READY = 400


class NodeService:
    """The HTTP service of a server. Raises its refusal as ZmqTritonError, or NoServerError."""

    def __init__(self, node: Node, headers: Mapping[str, str], timeout_s: float) -> None:
        self.node = node
        self.http = HttpService(node.url, headers, timeout_s)

    def is_ready(self, model: str = "") -> bool:
        """Return the readiness of a model, or of the server."""
        path = f"{_path(model)}/ready" if model else "/v2/health/ready"
        try:
            self.http.request(path)
        except RefusedRequest as refusal:
            if refusal.status != _NOT_READY:
                raise
            return False
        return True

    def index(self) -> list[dict[str, Any]]:
        """Return the versions of all models with their states."""
        entries: list[dict[str, Any]] = self._post("/v2/repository/index", {})
        return entries

    def serves(self, model: str) -> bool:
        """Return whether the server should serve a model, ready or not."""
        return any(e["name"] == model and e.get("reason") != "unloaded" for e in self.index())

    def load_figures(self) -> dict[str, Any]:
        figures: dict[str, Any] = self.http.request("/v2/load").json()
        return figures

    def infer(self, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Send an inference to a model at this path."""
        return self.http.request(f"{path}/infer", body, headers)

    def load(self, model: str) -> str:
        self._post(f"/v2/repository/models/{quote(model, safe='')}/load", {})
        return "loaded"

    def unload(self, model: str) -> str:
        self._post(f"/v2/repository/models/{quote(model, safe='')}/unload", {})
        return "unloaded"

    def drain(self, model: str = "", within_s: float | None = None) -> str:
        """Drain a model, or the server, and return the state of the drain."""
        wish = {} if within_s is None else {"within_s": within_s}
        return str(self._post(f"{_path(model)}/drain", wish)["state"])

    def undrain(self, model: str = "") -> str:
        return str(self._post(f"{_path(model)}/undrain", {})["state"])

    def _post(self, path: str, document: Mapping[str, Any]) -> Any:
        answer = self.http.request(path, json.dumps(document).encode())
        return answer.json() if answer.body.strip() else {}


def _path(model: str) -> str:
    return f"/v2/models/{quote(model, safe='')}" if model else "/v2"


@dataclass(frozen=True)
class Reply(Generic[Found]):
    """The response of a server, or the reason why it failed."""

    node: Node
    answer: Found | None
    problem: str = ""


def ask_all(
    services: Sequence[NodeService], question: Callable[[NodeService], Found]
) -> list[Reply[Found]]:
    """Ask all servers the question at once."""
    with ThreadPoolExecutor(min(_MAX_AT_ONCE, max(1, len(services)))) as threads:
        return list(threads.map(lambda service: ask(service, question), services))


def ask(service: NodeService, question: Callable[[NodeService], Found]) -> Reply[Found]:
    try:
        return Reply(service.node, question(service))
    except ZmqTritonError as error:
        return Reply(service.node, None, error.text)
    except NoServerError as error:
        return Reply(service.node, None, str(error))


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
        """Return the next steps after a failure, as commands for some of the servers."""
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
    """Load a model on each server, reporting each step; drain it first within a limit."""
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
    """Wait until the model is ready. Raises DeadlineExceeded."""
    end_s = time.monotonic() + within_s
    while not service.is_ready(model):
        if time.monotonic() > end_s:
            raise errors.DeadlineExceeded(
                f"'{model}' was not ready within {within_s:g} s; see `zmqtriton-ctl explain`"
            )
        time.sleep(_LOOK_EVERY_S)
