"""The application of Ray Serve that `zmqtriton.ray:app` names.

serve run zmqtriton.ray:app file=fleet.yaml
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from ray import serve

from zmqtriton_addons.fleet.serve.configuration import deployment_options, ingress_config
from zmqtriton_addons.fleet.serve.groups import INGRESS, FleetFile, Group, parse_fleet
from zmqtriton_addons.fleet.serve.ingress import Ingress
from zmqtriton_addons.fleet.serve.replica import ServerReplica
from zmqtriton_addons.fleet.serve.server_options import server_options, stop_within_s
from zmqtriton_floor.errors import InvalidArgument


def read_fleet(path: Path) -> FleetFile:
    """Read the file of a fleet. Raises InvalidArgument, and OSError."""
    try:
        document = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path}: this is no YAML: {error}") from None
    try:
        return parse_fleet(document)
    except InvalidArgument as error:
        raise InvalidArgument(f"{path}: {error.text}") from None


def app(args: dict[str, Any]) -> serve.Application:
    """Return the application of a fleet: of a file, or of its fields themselves."""
    fleet = read_fleet(Path(args["file"])) if "file" in args else parse_fleet(args)
    bound = {group.name: _bind(group) for group in fleet.groups}
    if len(bound) == 1:
        return next(iter(bound.values()))
    ingress = serve.deployment(Ingress, name=INGRESS)
    return ingress.options(
        # a death of one leaves the other
        num_replicas=2,
        max_ongoing_requests=1000,
        user_config=ingress_config(fleet),
        ray_actor_options={"num_cpus": 0.1},
    ).bind(bound)


def _bind(group: Group) -> serve.Application:
    words = server_options(group)
    stop_s = stop_within_s(group, words)
    deployment = serve.deployment(ServerReplica, name=group.name)
    return deployment.options(**deployment_options(group, stop_s)).bind(
        words, dict(group.headers), group.drain_within_s, stop_s
    )
