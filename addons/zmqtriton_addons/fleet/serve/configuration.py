"""The configuration of Ray Serve that a fleet's file stands for. Does no I/O.

`args` of the application has what replaces servers when it changes. All that Serve changes while
they run is in `deployments`: numbers of replicas, and the models in `user_config`.
"""

from __future__ import annotations

from typing import Any

from zmqtriton_addons.fleet.serve import scaling
from zmqtriton_addons.fleet.serve.groups import INGRESS, FleetFile, Group

_APPLICATION = "zmqtriton.ray:app"
_SERVICER = "zmqtriton.ray:add_servicer"
#: A server that hangs is asked so often, and each question has so long: three in a row without an
#: answer are 30 s at most, and Serve replaces it.
_HEALTH = {"health_check_period_s": 2.0, "health_check_timeout_s": 8.0}
#: Servers queue requests themselves, by their models' settings.
_MOST_ONGOING = 1000
_MARGIN_S = 15.0
_POLICY = "zmqtriton_addons.fleet.serve.scaling:decide"


def serve_config(fleet: FleetFile) -> dict[str, Any]:
    """Return the document that `serve deploy` takes."""
    deployments = [{"name": name, **_changeable(group)} for name, group in fleet.groups.items()]
    if len(fleet.groups) > 1:
        deployments.append({"name": INGRESS, "user_config": ingress_config(fleet)})
    application = {
        "name": fleet.name,
        "route_prefix": "/",
        "import_path": _APPLICATION,
        "args": {"groups": {name: group.server() for name, group in fleet.groups.items()}},
        "deployments": deployments,
    }
    grpc_options = {"grpc_servicer_functions": [_SERVICER], **fleet.serve.get("grpc_options", {})}
    return {**fleet.serve, "grpc_options": grpc_options, "applications": [application]}


def deployment_options(group: Group, stop_within_s: float) -> dict[str, Any]:
    """Return the options of a group's deployment."""
    return {
        **_changeable(group),
        **_HEALTH,
        "max_ongoing_requests": _MOST_ONGOING,
        "graceful_shutdown_timeout_s": stop_within_s + _MARGIN_S,
    }


def ingress_config(fleet: FleetFile) -> dict[str, Any]:
    groups = fleet.groups.items()
    return {"groups": {name: None if g.models is None else list(g.models) for name, g in groups}}


def _changeable(group: Group) -> dict[str, Any]:
    resources: dict[str, Any] = {"num_cpus": group.cpus, "num_gpus": group.gpus}
    if group.memory:
        resources["memory"] = group.memory
    options = {"user_config": {"models": group.models}, "ray_actor_options": resources}
    if group.max_replicas in (None, group.min_replicas):
        return {**options, "num_replicas": group.min_replicas}
    return {
        **options,
        "autoscaling_config": {
            "min_replicas": group.min_replicas,
            "max_replicas": group.max_replicas,
            "policy": {"policy_function": _POLICY},
            **scaling.DELAYS,
        },
    }
