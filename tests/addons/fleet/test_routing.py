"""The servers that requests for a model are sent to, as it comes and goes there."""

from __future__ import annotations

from typing import Any

from zmqtriton_addons.fleet.routing import Routing
from zmqtriton_addons.fleet.servers.nodes import node_of


def models_of(routing: Routing, *models: dict[str, Any], started_s: int = 1) -> tuple[str, ...]:
    announcement = {
        "format": 1,
        "addresses": {"http": "10.0.0.7:8000"},
        "started_s": started_s,
        "models": list(models),
    }
    node = node_of(announcement)
    assert node is not None
    [routed] = routing.route({"node-1": (node, announcement)})
    assert routed.models is not None
    return routed.models


READY = {"name": "m", "ready": True}
UNREADY = {"name": "m", "ready": False}


def test_a_model_that_loads_gets_nothing_until_it_is_ready() -> None:
    routing = Routing()

    assert () == models_of(routing, UNREADY)
    assert ("m",) == models_of(routing, READY)


def test_one_that_was_ready_is_for_the_proxy_to_judge() -> None:
    routing = Routing()
    models_of(routing, READY)

    assert ("m",) == models_of(routing, UNREADY)
    assert () == models_of(routing, UNREADY, started_s=2), "another run of the server"
    assert () == models_of(routing), "it was unloaded"
