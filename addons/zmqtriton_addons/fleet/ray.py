"""The engine `ray`: one actor on each of several nodes of a cluster, which owns the server there.

Ray restarts an actor whose process or node has died: on the same node, or on another one that has
none of them. The servers end with their actors, and the actors with this process.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from zmqtriton_addons.fleet.building import Settings, build_fleet
from zmqtriton_addons.fleet.engine import Report
from zmqtriton_addons.fleet.fleet import Fleet
from zmqtriton_addons.fleet.node_server import NodeServer
from zmqtriton_addons.fleet.servers.ray_actors import NAMESPACE
from zmqtriton_floor.errors import Unavailable

_ANSWER_WITHIN_S = 1.0
_STOP_WITHIN_S = 60.0


class Resources(NamedTuple):
    """Resources that Ray reserves on each node."""

    cpus: float = 1.0
    gpus: float = 0.0


_USUAL = Resources()


class RayEngine:
    """Nodes of the cluster at `address`, by default the one of this machine or $RAY_ADDRESS.

    A script that has called `ray.init` already goes on with what it has.
    """

    def __init__(
        self,
        count: int,
        options: Sequence[str],
        *,
        address: str = "auto",
        resources: Resources = _USUAL,
    ) -> None:
        self._names = [f"node-{number}" for number in range(1, count + 1)]
        self._options = list(options)
        self._address = address
        self._resources = resources
        self._is_ours = False
        self._group: Any = None
        self._actors: dict[str, Any] = {}
        self._questions: dict[str, Any] = {}
        #: The last answer of each, and when it came.
        self._reports: dict[str, tuple[Report, float]] = {}

    def start(self) -> None:
        if not ray.is_initialized():
            self._connect()
        bundle = {"CPU": self._resources.cpus, "GPU": self._resources.gpus}
        amounts = {name: amount for name, amount in bundle.items() if amount}
        # a bundle must ask for something, if only for a share that nobody misses
        self._group = placement_group(
            [amounts or {"CPU": 0.001}] * len(self._names), strategy="STRICT_SPREAD"
        )
        actor = ray.remote(max_restarts=-1)(NodeServer)
        fleet = secrets.token_hex(4)  # there may be several on a cluster
        for number, name in enumerate(self._names):
            place = PlacementGroupSchedulingStrategy(self._group, number)
            chosen = actor.options(
                name=f"{fleet}/{name}",
                namespace=NAMESPACE,
                num_cpus=self._resources.cpus,
                num_gpus=self._resources.gpus,
                scheduling_strategy=place,
            )
            self._actors[name] = chosen.remote(name, self._options)
            self._reports[name] = Report(problem="Ray has not placed it yet"), time.monotonic()

    def _connect(self) -> None:
        try:
            ray.init(address=self._address, logging_level="warning")
        except (ConnectionError, ValueError, RuntimeError, RayError) as error:
            raise Unavailable(
                f"no Ray cluster at '{self._address}': {error}. `ray start --head` starts one "
                "here, and `ray start --address=…` adds a machine to it"
            ) from None
        self._is_ours = True

    def look(self) -> dict[str, Report]:
        for name, actor in self._actors.items():
            if name not in self._questions:
                self._questions[name] = actor.look.remote()
        pending = list(self._questions.values())
        ray.wait(pending, num_returns=len(pending), timeout=_ANSWER_WITHIN_S)
        for name, question in list(self._questions.items()):
            if ray.wait([question], timeout=0)[0]:
                del self._questions[name]
                self._reports[name] = _take(question), time.monotonic()
        # who does not answer grows stale
        now_s = time.monotonic()
        return {
            name: report._replace(age_s=report.age_s + now_s - came_s)
            for name, (report, came_s) in self._reports.items()
        }

    def stop(self) -> None:
        ending = [actor.stop.remote() for actor in self._actors.values()]
        if ending:
            ray.wait(ending, num_returns=len(ending), timeout=_STOP_WITHIN_S)
        for actor in self._actors.values():
            ray.kill(actor)
        self._actors.clear()
        if self._group is not None:
            remove_placement_group(self._group)
        if self._is_ours:
            ray.shutdown()


def up(
    nodes: int,
    settings: Settings,
    *,
    address: str = "auto",
    resources: Resources = _USUAL,
    tell: Callable[[str], None] = lambda line: None,
) -> Fleet:
    """Return a fleet on so many nodes of a cluster, which begins when it is entered.

        settings = Settings(["/models"], replicas=["resnet=1-4"])
        with zmqtriton.fleet.ray.up(2, settings) as fleet:
            fleet.wait_until_whole(120)

    `tell` gets a line of each event. Raises ZmqTritonError for wrong settings.
    """

    def make_engine(options: list[str]) -> RayEngine:
        return RayEngine(nodes, options, address=address, resources=resources)

    return build_fleet(settings, make_engine, tell)


def _take(answer: Any) -> Report:
    try:
        report: Report = ray.get(answer)
    except ActorUnavailableError:
        return Report(problem="Ray cannot reach its actor")
    except RayActorError:
        return Report(problem="Ray starts its actor again")
    return report
