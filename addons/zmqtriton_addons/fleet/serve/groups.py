"""The file of a fleet: groups of models, and the servers of each. Does no I/O.

A group is a deployment of Ray Serve, and each of its replicas is a server. The models and the
number of replicas may change while they run; a change of anything else replaces the servers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from zmqtriton_floor.errors import InvalidArgument

#: The deployment that leads requests to the groups, if there are several.
INGRESS = "ingress"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT]i)?B?")
_UNITS = {None: 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
_DEFAULT_NAME = "zmqtriton"
_FIELDS = frozenset({"name", "groups", "serve"})
#: Models of a group, and the mark of each; another mark is another version, which is loaded.
Models = Mapping[str, Any]


class Group(NamedTuple):
    name: str
    model_repository: tuple[str, ...]
    #: None for all models of the repositories.
    models: Models | None = None
    min_replicas: int = 1
    max_replicas: int = 1
    #: Resources that Ray reserves for each server.
    cpus: float = 1.0
    gpus: float = 0.0
    memory: int = 0
    #: Options of the servers, as `--NAME=VALUE`.
    options: tuple[str, ...] = ()
    #: Headers for a server that restricts its load figures.
    headers: Mapping[str, str] = {}
    #: The limit for the drain of a server before it stops.
    drain_within_s: float = 30.0

    def server(self) -> dict[str, Any]:
        """Return the fields whose change replaces the servers, as the file has them."""
        return {
            # which models they are may change, but not whether they are named
            "models": None if self.models is None else [],
            "model_repository": list(self.model_repository),
            "options": list(self.options),
            "headers": dict(self.headers),
            "drain_within_s": self.drain_within_s,
        }


class FleetFile(NamedTuple):
    name: str
    groups: tuple[Group, ...]
    #: Ray Serve's own fields, such as `http_options`.
    serve: Mapping[str, Any] = {}


def parse_fleet(document: Any) -> FleetFile:
    """Read the document of a file. Raises InvalidArgument, which names the field."""
    fields = _mapping(document, "the file")
    _check_names(fields, _FIELDS, "the file")
    groups = _mapping(fields.get("groups"), "groups")
    if not groups:
        raise InvalidArgument("groups: the file has no group")
    name = str(fields.get("name", _DEFAULT_NAME))
    parsed = tuple(_parse_group(str(key), value) for key, value in groups.items())
    return FleetFile(name, parsed, _mapping(fields.get("serve", {}), "serve"))


def _parse_group(name: str, value: Any) -> Group:
    where = f"groups.{name}"
    if not _NAME.fullmatch(name) or name == INGRESS:
        raise InvalidArgument(f"{where}: '{name}' cannot be the name of a group")
    fields = _mapping(value, where)
    _check_names(fields, frozenset(Group._fields) - {"name"}, where)
    least = _number(fields.get("min_replicas", 1), f"{where}.min_replicas", is_whole=True)
    limit = _number(fields.get("max_replicas", least), f"{where}.max_replicas", is_whole=True)
    if not 1 <= least <= limit:
        raise InvalidArgument(f"{where}: min_replicas is 1 or more, and max_replicas not below it")
    repositories = _texts(fields.get("model_repository", ()), f"{where}.model_repository")
    if not repositories:
        raise InvalidArgument(f"{where}.model_repository is missing")
    headers = _mapping(fields.get("headers", {}), f"{where}.headers")
    return Group(
        name=name,
        model_repository=repositories,
        models=parse_models(fields.get("models"), f"{where}.models"),
        min_replicas=int(least),
        max_replicas=int(limit),
        cpus=_number(fields.get("cpus", 1.0), f"{where}.cpus"),
        gpus=_number(fields.get("gpus", 0.0), f"{where}.gpus"),
        memory=_parse_size(fields.get("memory", 0), f"{where}.memory"),
        options=_texts(fields.get("options", ()), f"{where}.options"),
        headers={str(key): str(text) for key, text in headers.items()},
        drain_within_s=_number(fields.get("drain_within_s", 30.0), f"{where}.drain_within_s"),
    )


def parse_models(value: Any, where: str = "models") -> Models | None:
    """Read names of models, or a mapping of names to marks; None is all models.

    Raises InvalidArgument.
    """
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {str(name): mark for name, mark in value.items()}
    return dict.fromkeys(_texts(value, where), 1)


class Change(NamedTuple):
    """The models to load, again or for the first time, and those to unload."""

    load: tuple[str, ...]
    unload: tuple[str, ...]


def change_of(before: Models, after: Models) -> Change:
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


def _check_names(fields: Mapping[str, Any], names: frozenset[str], where: str) -> None:
    if unknown := sorted(set(fields) - names):
        raise InvalidArgument(
            f"{where}: '{unknown[0]}' is not known; known are {', '.join(sorted(names))}"
        )


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"{where}: this is no mapping of names to values")
    return value


def _texts(value: Any, where: str) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, (list, tuple)) or not all(isinstance(each, str) for each in texts):
        raise InvalidArgument(f"{where}: this is neither a text nor a list of texts")
    return tuple(texts)


def _number(value: Any, where: str, *, is_whole: bool = False) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or value < 0 or (is_whole and value != int(value)):
        kind = "whole number" if is_whole else "number"
        raise InvalidArgument(f"{where}: '{value}' is no {kind} from 0")
    return value  # type: ignore[no-any-return]


def _parse_size(value: Any, where: str) -> int:
    """Read bytes, as a number or as a text such as 4Gi."""
    match = _SIZE.fullmatch(str(value))
    if match is None or isinstance(value, bool):
        raise InvalidArgument(f"{where}: '{value}' is no size; 4Gi is one")
    return int(float(match[1]) * _UNITS[match[2]])
