"""The file of a fleet: groups of models, and the servers of each. Does no I/O.

A group is a deployment of Ray Serve, and each of its replicas is a server. The models and the
number of replicas may change while they run; a change of anything else replaces the servers.
"""

from __future__ import annotations

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

from zmqtriton_floor.errors import InvalidArgument

#: The deployment that leads requests to the groups, if there are several.
INGRESS = "ingress"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT]i)?B?")
_UNITS = {None: 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
#: Fields whose change replaces the servers; with `models`, as far as these are named at all.
_OF_SERVERS = {"model_repository", "options", "headers", "drain_within_s"}


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name) or name == INGRESS:
        raise ValueError(f"'{name}' cannot be the name of a group")
    return name


def _read_size(value: Any) -> int:
    match = _SIZE.fullmatch(str(value))
    if match is None or isinstance(value, bool):
        raise ValueError(f"'{value}' is no size; 4Gi is one")
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
    #: None for all models of the repositories.
    models: Models | None = None
    min_replicas: PositiveInt = 1
    #: None for as many as there are at least.
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
            raise ValueError("max_replicas is below min_replicas")
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
    """Return what leads from the models that a server was told to serve to others."""
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
