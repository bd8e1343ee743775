"""Turns what crosses between the supervisor and its readers into text, and back.

Answers of add-ons are plain data. Only types in the table are created again, so a text cannot
execute anything. Functions in a value are left out.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from zmqtriton.config import known_parameters
from zmqtriton.config.files import ClientFiles
from zmqtriton.config.parameters import Quota
from zmqtriton.environments.demand import Environment, EnvironmentSpec, GuestHost
from zmqtriton.reading.blueprint import (
    BackendCode,
    Blueprint,
    EnsembleBlueprint,
    FileSource,
    FinalConfig,
    InstanceSlot,
    LoadOverride,
    ReadFailure,
    VersionBlueprint,
)
from zmqtriton.repository.decisions import Decision, KeepDecisions
from zmqtriton.repository.scan import Promotion, VersionSelection
from zmqtriton_floor.errors import ZmqTritonError, from_number
from zmqtriton_floor.reasons import Kind, Reason


class SourceText(NamedTuple):
    """The file of a configuration as it was read, for errors that are found later."""

    path: str
    text: str


@dataclass(frozen=True)
class ModelReading:
    """A blueprint without its functions, and the data to make them again."""

    blueprint: Blueprint
    #: The configuration as protobuf.
    config: bytes
    files: ClientFiles
    #: Text of config.pbtxt; None without a file, or if the load has a configuration.
    source: SourceText | None
    #: Final configuration if the model adds nothing; None if that is unknown here. A client's
    #: configuration can be large, so it is computed here and not in the loop.
    finished: FinalConfig | ZmqTritonError | None = None


class FoundModel(NamedTuple):
    """A model that a repository has."""

    #: Real path of the model, because two repositories can name the same place.
    place: str
    reading: ModelReading | ReadFailure


_TYPES = {
    kind.__name__: kind
    for kind in (
        BackendCode,
        Blueprint,
        ClientFiles,
        Decision,
        *known_parameters.types(),
        EnsembleBlueprint,
        Environment,
        EnvironmentSpec,
        FileSource,
        FinalConfig,
        FoundModel,
        GuestHost,
        InstanceSlot,
        KeepDecisions,
        LoadOverride,
        ModelReading,
        Promotion,
        Quota,
        ReadFailure,
        Reason,
        SourceText,
        VersionBlueprint,
        VersionSelection,
    )
}
_SCALARS = (type(None), bool, int, float, str)
_BYTES, _TUPLE, _LIST, _SET, _MAPPING, _ERROR = "bytes", "tuple", "list", "set", "mapping", "error"
_SEQUENCES: dict[type, str] = {tuple: _TUPLE, list: _LIST, frozenset: _SET}


def dumps(value: Any) -> str:
    """Return the text. Raises TypeError for a value of another type."""
    return json.dumps(_encode(value))


def loads(text: str) -> Any:
    """Return the value that dumps() was given."""
    return _decode(json.loads(text))


def _encode(value: Any) -> Any:
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is Kind:
        return value.value
    if isinstance(value, ZmqTritonError):
        return [_ERROR, value.number, value.text, _encode(value.reason)]
    if kind is bytes:
        return [_BYTES, base64.b64encode(value).decode()]
    if kind is dict:
        return [_MAPPING, [[_encode(key), _encode(one)] for key, one in value.items()]]
    if kind in _SEQUENCES:
        return [_SEQUENCES[kind], [_encode(one) for one in value]]
    if _TYPES.get(kind.__name__) is kind:
        return [kind.__name__, {n: _encode(v) for n, v in _members(value) if not callable(v)}]
    raise TypeError(f"{kind.__name__} is not in the table")


def _members(value: Any) -> list[tuple[str, Any]]:
    if dataclasses.is_dataclass(value):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return list(value._asdict().items())


def _decode(value: Any) -> Any:
    if type(value) is not list:
        return value
    name, *rest = value
    if name in _TYPES:
        members = {member: _decode(one) for member, one in rest[0].items()}
        if name == Reason.__name__:
            members["kind"] = Kind(members["kind"])
        return _TYPES[name](**members)
    return _MADE_ANEW[name](*rest)


_MADE_ANEW: dict[str, Callable[..., Any]] = {
    _BYTES: base64.b64decode,
    _TUPLE: lambda values: tuple(map(_decode, values)),
    _LIST: lambda values: [_decode(one) for one in values],
    _SET: lambda values: frozenset(map(_decode, values)),
    _MAPPING: lambda pairs: {_decode(key): _decode(one) for key, one in pairs},
    _ERROR: lambda number, text, reason: from_number(number, text, _decode(reason)),
}
