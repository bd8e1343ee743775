"""The application of Ray Serve that `zmqtriton.ray:app` names.

serve run zmqtriton.ray:app file=fleet.yaml
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from ray import serve

from zmqtriton.sdk.wire import InvalidArgument
from zmqtriton_extras.fleet.serve.groups import (
    INGRESS,
    FleetFile,
    Group,
    deployment_options,
    ingress_config,
    parse_fleet,
)
from zmqtriton_extras.fleet.serve.ingress import Ingress
from zmqtriton_extras.fleet.serve.owned_server import server_options
from zmqtriton_extras.fleet.serve.replica import ServerReplica


def read_fleet(path: Path) -> FleetFile:
    """Read the file of a fleet, and check the options of its servers.

    Raises InvalidArgument, and OSError.
    """
    try:
        fleet = parse_fleet(yaml.safe_load(path.read_text("utf-8")))
        for name, group in fleet.groups.items():
            server_options(name, group)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path}: correct the YAML: {error}") from None
    except InvalidArgument as error:
        raise InvalidArgument(f"{path}: {error.text}") from None
    return fleet


def app(args: dict[str, Any]) -> serve.Application:
    """Return the application of a fleet, from a file or from a file's fields as arguments."""
    fleet = read_fleet(Path(args["file"])) if "file" in args else parse_fleet(args)
    bound = {name: _bind(name, group) for name, group in fleet.groups.items()}
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


def _bind(name: str, group: Group) -> serve.Application:
    words, stop_s = server_options(name, group)
    deployment = serve.deployment(ServerReplica, name=name)
    return deployment.options(**deployment_options(group, stop_s)).bind(
        words, group.headers, group.drain_within_s, stop_s
    )
