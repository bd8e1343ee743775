"""The file of a fleet: groups of models, their servers, and the deployments of Ray Serve.

A group is a deployment of Ray Serve, and each of its replicas is a server. Serve changes numbers of
replicas and the models in `user_config` while they run; a change of anything else, in `args` of the
application, replaces the servers. Does no I/O.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from zmqtriton.sdk.wire import InvalidArgument

#: The deployment that leads requests to the groups, if there are several.
INGRESS = "ingress"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT]i)?B?")
_UNITS = {None: 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
#: Fields whose change replaces the servers; with `models`, as far as these are named at all.
_OF_SERVERS = {"model_repository", "options", "headers", "drain_within_s"}
#: The name of the metric that replicas report.
DEMAND = "zmqtriton_demand"
#: Requests that may wait for each ready instance.
_WAITING = 4.0
#: The demand that each server should have: room for what comes before another one is there.
_TARGET = 2 / 3
#: Serve adds servers after this time of too much demand, and takes them away after that of too
#: little, since a start costs more than some idle time.
DELAYS = {"upscale_delay_s": 10.0, "downscale_delay_s": 120.0}
_APPLICATION = "zmqtriton.ray:app"
_SERVICER = "zmqtriton.ray:add_servicer"
#: A server that hangs is asked so often, and each question has so long: three in a row without an
#: answer are 30 s at most, and Serve replaces it.
_HEALTH = {"health_check_period_s": 2.0, "health_check_timeout_s": 8.0}
#: Servers queue requests themselves, by their models' settings.
_MOST_ONGOING = 1000
_MARGIN_S = 15.0
_POLICY = "zmqtriton_extras.fleet.serve.groups:decide"


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name) or name == INGRESS:
        raise ValueError(f"'{name}' cannot be the name of a group: use letters, digits, _ and -")
    return name


def _read_size(value: Any) -> int:
    match = _SIZE.fullmatch(str(value))
    if match is None or isinstance(value, bool):
        raise ValueError(f"'{value}' must be a size such as 4Gi")
    return int(float(match[1]) * _UNITS[match[2]])


def _read_models(value: Any) -> Any:
    names = [value] if isinstance(value, str) else value
    return dict.fromkeys(map(str, names), 1) if isinstance(names, list) else value


Texts = Annotated[list[str], BeforeValidator(lambda v: [v] if isinstance(v, str) else v)]
#: Models of a group, and the mark of each; another mark is another version, which is loaded.
Models = Annotated[dict[str, Any], BeforeValidator(_read_models)]


class _Fields(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, protected_namespaces=())


class Group(_Fields):
    model_repository: Annotated[Texts, Field(min_length=1)]
    #: Names of the models that the servers load; None for all models of the repositories.
    models: Models | None = None
    min_replicas: PositiveInt = 1
    #: Maximum number of servers; None for the minimum, so that the number is fixed.
    max_replicas: PositiveInt | None = None
    #: Resources that Ray reserves for each server.
    cpus: NonNegativeFloat = 1.0
    gpus: NonNegativeFloat = 0.0
    memory: Annotated[int, BeforeValidator(_read_size)] = 0
    #: Options of the servers, as `--NAME=VALUE`.
    options: Texts = []
    #: Headers for a server that restricts its load figures.
    headers: dict[str, str] = {}
    #: The limit for the drain of a server before it stops.
    drain_within_s: NonNegativeFloat = 30.0

    @model_validator(mode="after")
    def _check_limits(self) -> Group:
        if self.max_replicas is not None and self.max_replicas < self.min_replicas:
            raise ValueError("max_replicas must be at least min_replicas")
        return self

    def server(self) -> dict[str, Any]:
        """Return the fields whose change replaces the servers, as the file has them."""
        # which models they are may change, but not whether they are named
        return {"models": None if self.models is None else {}} | self.model_dump(
            include=_OF_SERVERS
        )


class FleetFile(_Fields):
    name: str = "zmqtriton"
    groups: Annotated[dict[Annotated[str, AfterValidator(_check_name)], Group], Field(min_length=1)]
    #: Ray Serve's own fields, such as `http_options`.
    serve: dict[str, Any] = {}


def parse_fleet(document: Any) -> FleetFile:
    """Read the document of a file. Raises InvalidArgument, which names the field."""
    try:
        return FleetFile.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        text = first["msg"].removeprefix("Value error, ")
        raise InvalidArgument(f"{where}: {text}") from None


class Change(NamedTuple):
    """The models to load, again or for the first time, and those to unload."""

    load: tuple[str, ...]
    unload: tuple[str, ...]


def change_of(before: Mapping[str, Any], after: Mapping[str, Any]) -> Change:
    """Return the change from one set of served models to another."""
    absent = object()
    load = tuple(name for name in after if before.get(name, absent) != after[name])
    return Change(load, tuple(name for name in before if name not in after))


def choose_group(groups: Mapping[str, Sequence[str] | None], model: str) -> str | None:
    """Return the group that serves a model: by its name, or else a group without names.

    Without a model, the first; None if there is no such group.
    """
    if not model:
        return next(iter(groups))
    named = (name for name, models in groups.items() if models is not None and model in models)
    other = (name for name, models in groups.items() if models is None)
    return next(named, None) or next(other, None)


def demand_of(figures: Mapping[str, Any]) -> float:
    """Return the demand of a server from its answer to /v2/load."""
    instances = sum(int(entry["instances"]["ready"]) for entry in figures.get("models", ()))
    waiting = float(figures.get("queued", 0)) / max(1, instances) / _WAITING
    return float(figures.get("utilization", 0.0)) + waiting


def wished_servers(demands: Sequence[float], servers: int) -> int:
    """Return the number of servers for the demand; silent servers count like the average."""
    mean = sum(demands) / len(demands)
    return max(1, math.ceil(mean * servers / _TARGET - 1e-9))


def decide(context: Any) -> tuple[int, dict[str, Any]]:
    """Return the number of replicas; a policy for Ray Serve's autoscaling."""
    metrics = context.aggregated_metrics or {}
    demands = list(metrics.get(DEMAND, {}).values())
    if not demands:
        return context.target_num_replicas, {}
    # those that still start carry none of it
    return wished_servers(demands, len(context.running_replicas)), {}


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
            **DELAYS,
        },
    }
