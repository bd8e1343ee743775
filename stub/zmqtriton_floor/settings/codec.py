"""Settings as text, for the way to another process: one JSON object for each NamedTuple.

Both ends are of one version, so a document that does not fit its class is a defect of the server,
and raises.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import (
    Any,
    Dict,
    Tuple,
    Type,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

T = TypeVar("T")


class SettingsError(Exception):
    """Raised for a document that is not of its class; the text names the field."""


def encode(settings: Any) -> str:
    """Return a NamedTuple of settings as a document."""
    return json.dumps(_plain(settings))


def decode(cls: Type[T], document: str) -> T:
    """Return the settings in a document. Raises SettingsError."""
    try:
        value = json.loads(document)
    except ValueError as error:
        raise SettingsError(f"{cls.__name__}: not JSON: {error}") from None
    return cast(T, _read(cls, value, cls.__name__))


def decode_some(cls: Type[T], document: str) -> T:
    """Return a NamedTuple from a document; missing fields get defaults, others are ignored."""
    values = json.loads(document)
    kinds = get_type_hints(cls)
    return cls(
        **{key: _read(kinds[key], part, key) for key, part in values.items() if key in kinds}
    )


def _plain(value: Any) -> Any:
    if hasattr(value, "_fields"):
        return {name: _plain(part) for name, part in zip(value._fields, value)}
    if isinstance(value, (tuple, list)):
        return [_plain(part) for part in value]
    return value


def _read(kind: Any, value: Any, name: str) -> Any:
    """Return a JSON value as an instance of this type."""
    origin = get_origin(kind)
    if type(None) in get_args(kind):  # an Optional
        return None if value is None else _read(get_args(kind)[0], value, name)
    if origin is not None:
        return _read_row(origin, get_args(kind), value, name)
    if hasattr(kind, "_fields"):
        return _read_fields(kind, value, name)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise SettingsError(f"{name}: {type(value).__name__} in place of {kind.__name__}")
    return value


def _read_row(origin: Any, kinds: Tuple[Any, ...], value: Any, name: str) -> Any:
    """Return a tuple or a list of parts."""
    if type(value) is not list:
        raise SettingsError(f"{name}: {type(value).__name__} in place of a list")
    if origin is list or kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(value)
    if len(kinds) != len(value):
        raise SettingsError(f"{name}: {len(value)} parts in place of {len(kinds)}")
    return origin(_read(kind, part, name) for kind, part in zip(kinds, value))


@lru_cache(maxsize=None)  # to find it out is most of the work of decode()
def _kinds_of(cls: Any) -> Dict[str, Any]:
    return get_type_hints(cls)


def _read_fields(cls: Any, value: Any, name: str) -> Any:
    if type(value) is not dict:
        raise SettingsError(f"{name}: {type(value).__name__} in place of an object")
    kinds = _kinds_of(cls)
    unknown = sorted(value.keys() - kinds.keys())
    missing = sorted(kinds.keys() - value.keys())
    if unknown or missing:
        raise SettingsError(f"{name}: unknown {unknown}, missing {missing}")
    return cls(**{key: _read(kinds[key], part, f"{name}.{key}") for key, part in value.items()})
