"""A fleet: looks at its nodes, and has models, the proxy and the announcements follow.

Wires the parts: an engine that keeps servers running, the plan that decides about models, and the
proxy. Servers are asked over HTTP, as anybody else would.
"""

from __future__ import annotations

import json
import queue
import shutil
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from zmqtriton_addons.fleet.copies import NodeView
from zmqtriton_addons.fleet.engine import Engine, Report
from zmqtriton_addons.fleet.plan import Action, Plan, Task
from zmqtriton_addons.fleet.replicas import ModelLoad, ReplicaLimits
from zmqtriton_addons.fleet.routing import Routing
from zmqtriton_addons.fleet.servers import nodes, rolling
from zmqtriton_addons.fleet.servers.node_service import NodeService, ask, ask_all
from zmqtriton_addons.fleet.servers.nodes import Node
from zmqtriton_addons.fleet.servers.rollout import Rollout
from zmqtriton_floor.errors import Unavailable

_LOOK_EVERY_S = 0.5
#: For what a server answers from memory, and for a load.
_LOOK_WITHIN_S, _LOAD_WITHIN_S = 2.0, 600.0
#: For what comes to a server all the same, when one of its models drains.
_DRAIN_WITHIN_S = 60.0
_READY = "ready"
#: States in which a server takes requests for what is ready.
_SERVING = frozenset({_READY, "unready", "draining"})


_DEEDS: Mapping[Action, Callable[[NodeService, str], str]] = {
    Action.LOAD: NodeService.load,
    Action.DRAIN: lambda service, model: service.drain(model, _DRAIN_WITHIN_S),
    Action.UNDRAIN: NodeService.undrain,
    Action.UNLOAD: NodeService.unload,
}


class Proxy(Protocol):
    def update(self, nodes: list[Node], models: Collection[str]) -> None: ...
    def stop(self) -> None: ...


class Fleet:
    """Begins when it is entered, and has ended when it is left."""

    def __init__(
        self,
        engine: Engine,
        directory: Path,
        *,
        is_temporary: bool = False,
        proxy: Proxy | None = None,
        replicas: Mapping[str, ReplicaLimits] | None = None,
        headers: Mapping[str, str] | None = None,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        #: Holds the announcement of each server, for whoever looks: `zmqtriton-ctl fleet` does.
        self.directory = directory
        self._is_temporary = is_temporary
        self._engine = engine
        self._proxy = proxy
        self._plan = Plan(replicas or {})
        self._placed = frozenset(replicas or ())
        #: The number of nodes of some models goes by their load.
        self._scales = any(limit.minimum < limit.maximum for limit in (replicas or {}).values())
        self._routing = Routing()
        self._headers = headers or {}
        self._tell = tell
        self._tasks = ThreadPoolExecutor(thread_name_prefix="fleet-task")
        #: Tasks that have ended, and whether they have failed.
        self._ended = queue.SimpleQueue[tuple[Task, bool]]()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="fleet")
        self._shown: dict[str, str] = {}
        self._written: dict[str, Mapping[str, Any] | None] = {}
        self._serving: list[Node] = []
        self._is_whole = False

    def __enter__(self) -> Fleet:
        self.directory.mkdir(0o700 if self._is_temporary else 0o777, parents=True, exist_ok=True)
        self._remove_announcements()
        try:
            self._engine.start()
        except BaseException:
            self._clean_up()
            raise
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._clean_up()

    @property
    def is_whole(self) -> bool:
        """True while all servers are ready, and all models where they should be."""
        return self._is_whole

    def wait_until_whole(self, within_s: float) -> None:
        """Raise Unavailable if the fleet is not whole in time."""
        end_s = time.monotonic() + within_s
        while not self._is_whole:
            if time.monotonic() > end_s:
                raise Unavailable("; ".join(f"{n}: {s}" for n, s in sorted(self._shown.items())))
            time.sleep(_LOOK_EVERY_S / 5)

    def servers(self) -> list[Node]:
        """Return the servers that take requests, as they were seen last."""
        return self._serving

    def rollout(self, model: str, *, drains: bool = False, ready_within_s: float = 300) -> Rollout:
        """Load a model again on one server after the other; return what became of it."""
        services = {node: self._service(node, _LOAD_WITHIN_S) for node in self.servers()}
        plan = Rollout([node for node in services if node.has(model)], drains=drains)
        rolling.perform(plan, services, model, rolling.Limits(60.0, ready_within_s), self._tell)
        return plan

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                self._turn()
            except Exception as error:  # noqa: BLE001 - one turn fails, and the fleet goes on
                self._tell(f"error: {type(error).__name__}: {error}")
            self._is_over.wait(_LOOK_EVERY_S)
        # here, since the kernel ends a proxy together with the thread that has started it
        self._stop()

    def _stop(self) -> None:
        try:
            self._engine.stop()
        except Exception as error:  # noqa: BLE001 - the proxy ends nevertheless
            self._tell(f"error: {type(error).__name__}: {error}")
        self._tasks.shutdown(cancel_futures=True)
        if self._proxy is not None:
            self._proxy.stop()

    def _turn(self) -> None:
        reports = self._engine.look()
        live_nodes = self._find(reports)
        self._write(reports)
        serving = {name: node for name, node in live_nodes.items() if _serves(node)}
        self._serving = list(serving.values())
        if self._proxy is not None:
            announcements = {
                n: (node, reports[n].announcement or {}) for n, node in serving.items()
            }
            models = self._placed.union(*(node.models or () for node in serving.values()))
            self._proxy.update(self._routing.route(announcements), models)
        is_whole = all(name in live_nodes and live_nodes[name].state == _READY for name in reports)
        if self._placed:
            is_whole &= self._place(serving, len(reports))
        self._show(reports, live_nodes, is_whole=is_whole)
        self._is_whole = is_whole

    def _find(self, reports: Mapping[str, Report]) -> dict[str, Node]:
        live_nodes = {}
        for name, report in reports.items():
            node = nodes.node_of(report.announcement or {}, report.age_s)
            if node is not None and not node.is_gone:
                live_nodes[name] = node
        return live_nodes

    def _write(self, reports: Mapping[str, Report]) -> None:
        """Write new announcements, and remove old ones."""
        for name, report in reports.items():
            path = self.directory / f"{name}.json"
            if report.announcement == self._written.get(name):
                continue
            self._written[name] = report.announcement
            if report.announcement is None:
                path.unlink(missing_ok=True)
                continue
            draft = path.with_suffix(".new")
            draft.write_text(json.dumps(report.announcement) + "\n", "utf-8")
            draft.replace(path)

    def _remove_announcements(self) -> None:
        """Remove the remains of servers that are no more."""
        for path in self.directory.glob("node-*.json"):
            path.unlink()

    def _clean_up(self) -> None:
        self._remove_announcements()
        if self._is_temporary:
            shutil.rmtree(self.directory)

    def _place(self, serving: Mapping[str, Node], nodes_wanted: int) -> bool:
        """Load and unload what the plan says; return whether all is where it should be."""
        # before the look, which must not be older than what is told to have ended
        now_s = time.monotonic()
        while not self._ended.empty():
            task, has_failed = self._ended.get()
            self._plan.finish(task, now_s, has_failed=has_failed)
        seen = self._look_at_models(serving)
        for task in self._plan.decide(seen, now_s, nodes_wanted):
            self._tasks.submit(self._perform, task, serving[task.node])
        return self._plan.is_whole(seen)

    def _look_at_models(self, serving: Mapping[str, Node]) -> dict[str, NodeView]:
        names = {node: name for name, node in serving.items()}
        services = [self._service(node, _LOOK_WITHIN_S) for node in names]
        replies = ask_all(services, self._look_at)
        return {names[r.node]: r.answer for r in replies if r.answer is not None}

    def _look_at(self, service: NodeService) -> NodeView:
        return _view(service.index(), service.load_figures()["models"] if self._scales else [])

    def _perform(self, task: Task, node: Node) -> None:
        self._tell(f"{task.node}: {task.action.value} {task.model}")
        problem = "it has not ended"
        try:
            service = self._service(node, _LOAD_WITHIN_S)
            problem = ask(service, lambda server: _DEEDS[task.action](server, task.model)).problem
        finally:
            # otherwise its node would get no other
            self._ended.put((task, bool(problem)))
        if problem:
            self._tell(f"{task.node}: {problem}")

    def _service(self, node: Node, within_s: float) -> NodeService:
        return NodeService(node, self._headers, within_s)

    def _show(
        self, reports: Mapping[str, Report], live_nodes: Mapping[str, Node], *, is_whole: bool
    ) -> None:
        for name, report in reports.items():
            node = live_nodes.get(name)
            state = report.problem if node is None else f"{node.state} at {node.http}"
            state = state or "starting"
            if self._shown.get(name) != state:
                self._shown[name] = state
                self._tell(f"{name}: {state}")
        if is_whole and not self._is_whole:
            self._tell("all nodes are ready")


def _serves(node: Node) -> bool:
    return node.state in _SERVING


def _view(index: list[dict[str, Any]], figures: list[dict[str, Any]]) -> NodeView:
    loads: dict[str, ModelLoad] = {}
    for entry in figures:
        load = ModelLoad(entry["queued"], entry["instances"]["ready"], entry["utilization"])
        loads[entry["name"]] = loads.get(entry["name"], ModelLoad()) + load
    meant = [e for e in index if "state" in e and e.get("reason") != "unloaded"]
    return NodeView(
        models=frozenset(e["name"] for e in meant),
        ready=frozenset(e["name"] for e in meant if e["state"] == "READY"),
        loads=loads,
    )
