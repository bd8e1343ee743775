"""The application of Ray Serve that `zmqtriton.ray:app` names.

serve run zmqtriton.ray:app file=fleet.yaml
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from ray import serve

from zmqtriton.command_line import read_options
from zmqtriton_addons.fleet.serve.configuration import deployment_options, ingress_config
from zmqtriton_addons.fleet.serve.groups import INGRESS, FleetFile, Group, parse_fleet
from zmqtriton_addons.fleet.serve.ingress import Ingress
from zmqtriton_addons.fleet.serve.replica import ServerReplica
from zmqtriton_floor.errors import InvalidArgument

#: Unless they are chosen. Any free ports, since there may be several servers on a machine: which
#: they are is announced. A model that fails is no reason to take the others from a node. A replica
#: that dies cannot drain its server before: proxies see within this time that it goes.
_USUAL = {
    "http-port": "0",
    "grpc-port": "0",
    "metrics-port": "0",
    "exit-on-error": "false",
    "exit-drain-secs": "2",
}
_OWN = ("owner-descriptor", "runtime-directory")
_MODE = "model-control-mode"


def server_options(name: str, group: Group) -> tuple[list[str], float]:
    """Return the options of each server, and the time that it takes to drain and stop, at most.

    Raises InvalidArgument, also for options that no server starts with.
    """
    chosen = {word.partition("=")[0].removeprefix("--") for word in group.options}
    if refused := chosen.intersection(_OWN):
        raise InvalidArgument(f"groups.{name}: --{min(refused)} is the fleet's own")
    if group.models is not None and _MODE in chosen:
        raise InvalidArgument(f"groups.{name}: either models or --{_MODE}")
    usual = dict(_USUAL)
    if _MODE not in chosen:
        usual[_MODE] = "explicit"
        if group.models is None:
            usual["load-model"] = "*"
    words = [f"--model-repository={_absolute(path)}" for path in group.model_repository]
    words += [f"--{option}={value}" for option, value in usual.items() if option not in chosen]
    words += group.options
    options = read_options(words)
    if isinstance(options, int):
        raise InvalidArgument(f"groups.{name}: servers would not start with these options")
    return words, group.drain_within_s + options.exit_drain_secs + options.exit_timeout_secs


def _absolute(path: str) -> str:
    return path if "://" in path else str(Path(path).absolute())


def read_fleet(path: Path) -> FleetFile:
    """Read the file of a fleet, and check the options of its servers.

    Raises InvalidArgument, and OSError.
    """
    try:
        fleet = parse_fleet(yaml.safe_load(path.read_text("utf-8")))
        for name, group in fleet.groups.items():
            server_options(name, group)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path}: this is no YAML: {error}") from None
    except InvalidArgument as error:
        raise InvalidArgument(f"{path}: {error.text}") from None
    return fleet


def app(args: dict[str, Any]) -> serve.Application:
    """Return the application of a fleet: of a file, or of its fields themselves."""
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
