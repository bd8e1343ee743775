"""The kinds of all values; those of dataclasses, TypedDicts, pydantic and dicts are JSON.

The hints of JSON are checked where the function runs; the server knows the schema.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import types
import typing
from typing import Any, Dict, Tuple

import numpy as np

from zmqtriton_extras.functions.backend import media
from zmqtriton_extras.functions.backend.api import Array
from zmqtriton_extras.functions.backend.kinds import (
    CONTENT,
    DATATYPE,
    DIMS,
    ELEMENTS,
    Arrays,
    Choice,
    HintError,
    Kind,
    MismatchError,
    Place,
    Scalars,
    array_of_one,
    as_bytes,
    named,
)
from zmqtriton_floor import documents
from zmqtriton_floor.descriptions import described

JSON = "application/json"
#: The origins of `X | Y` and `Union[X, Y]`; the first is of Python 3.10.
_UNIONS = (typing.Union, getattr(types, "UnionType", typing.Union))
#: Limits of answers: 900 levels, as the standard library's parser reads.
_NO_LIMITS = documents.DocumentLimits(*[sys.maxsize] * 4)._replace(depth=900)


class Documents(Kind):
    """Values of a hint as JSON; without a schema of their own those of the hint."""

    #: Limits of what a client sends.
    limits = documents.limits_of(documents.LIMITS.bytes)

    def __init__(self, hint: Any, schema: Any = None) -> None:
        self._hint = hint
        if schema:  # what a function has answered has no limit
            self.limits = _NO_LIMITS
        self.expected = f"JSON for {getattr(hint, '__name__', hint)}"
        self.schema = {**(schema or _schema(hint)), CONTENT: JSON}

    def decode(self, array: Any) -> Any:
        data = as_bytes(array.reshape(-1)[0])
        try:
            document = documents.parse(data, limits=self.limits)
        except documents.DocumentError as error:
            raise MismatchError(f"expected {self.expected}: {error}") from None
        return build(self._hint, document)

    def encode(self, value: Any) -> Any:
        is_record = dataclasses.is_dataclass(value) or hasattr(value, "model_dump")
        try:
            document = _plain(value) if is_record else value  # a record would be one piece
            return array_of_one(b"".join(documents.pieces(document, _write)))
        except (TypeError, ValueError, RecursionError):
            raise self.mismatch(value) from None


def _write(value: Any) -> bytes:
    return json.dumps(value, default=_plain, ensure_ascii=False).encode()


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError


def kind_of(hint: Any) -> Kind:
    """Return the kind that a hint names. Raises HintError."""
    if hint in media.CLASSES.values():
        return media.MediaKind(hint)
    is_dict = dict in (hint, typing.get_origin(hint))
    if typing.get_origin(hint) is list and isinstance(kind_of(typing.get_args(hint)[0]), Documents):
        return Documents(hint)  # WIP
    if is_dict or hasattr(hint, "model_validate") or _fields(hint)[0]:
        return Documents(hint)
    return plain_kind(hint)


def _fields(hint: Any) -> Tuple[Dict[str, Any], Any]:
    """Return the hints of a dataclass or TypedDict by field, and the names of those it needs."""
    if dataclasses.is_dataclass(hint):
        missing = dataclasses.MISSING
        needed = {
            each.name
            for each in dataclasses.fields(hint)
            if each.default is missing and each.default_factory is missing
        }
        return typing.get_type_hints(hint), needed
    if hasattr(hint, "__total__"):
        own = typing.get_type_hints(hint)
        return own, getattr(hint, "__required_keys__", own if hint.__total__ else ())
    return {}, ()


def build(hint: Any, document: Any) -> Any:
    """Return the value that a document is, for a hint. Raises MismatchError."""
    hint, is_nullable = without_none(hint)
    if hint is Any or (document is None and is_nullable):
        return document
    if hasattr(hint, "model_validate"):
        return _build_of_pydantic(hint, document)
    origin, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    fields, needed = _fields(hint)
    expected = dict if fields else origin
    if expected in (dict, list) and not isinstance(document, expected):
        raise MismatchError(f"expected {expected.__name__}, got {described(document)}")
    if origin is list:
        inner = arguments[0] if arguments else Any
        return [_build_at(number, inner, each) for number, each in enumerate(document)]
    if origin is dict:
        inner = arguments[1] if arguments else Any
        return {name: _build_at(named(name), inner, each) for name, each in document.items()}
    if not fields:
        kind = plain_kind(hint)
        return kind.decode(kind.encode(document))
    wrong = sorted((document.keys() - fields.keys()) | (set(needed) - document.keys()))
    if wrong:
        if wrong[0] in fields:
            raise MismatchError("expected a value, got nothing", wrong[0])
        raise MismatchError("there is no such field", named(wrong[0]))
    return hint(**{name: _build_at(name, fields[name], document[name]) for name in document})


def _build_at(place: Any, hint: Any, document: Any) -> Any:
    with Place(place):
        return build(hint, document)


def _build_of_pydantic(hint: Any, document: Any) -> Any:
    try:
        return hint.model_validate(document)
    except ValueError as error:
        errors: Any = getattr(error, "errors", list)()
        if not errors:
            raise
        raise MismatchError(errors[0]["msg"], *errors[0]["loc"]) from None


def _schema(hint: Any, around: Tuple[Any, ...] = ()) -> Dict[str, Any]:
    """Return the schema of a hint; a type within itself is just an object there."""
    hint, is_nullable = without_none(hint)
    if is_nullable:
        return {"anyOf": [_schema(hint, around), {"type": "null"}]}
    if hasattr(hint, "model_json_schema"):
        return dict(hint.model_json_schema())
    origin, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    fields, needed = _fields(hint)
    if fields and hint in around:
        return {"type": "object"}
    if fields:
        properties = {name: _schema(each, (*around, hint)) for name, each in fields.items()}
        return {"type": "object", "properties": properties, "required": sorted(needed)}
    if origin is dict:
        inner = _schema(arguments[1], around) if arguments else {}
        return {"type": "object", "additionalProperties": inner}
    if origin is list:
        return {"type": "array", "items": _schema(arguments[0], around) if arguments else {}}
    return {} if hint is Any else plain_kind(hint).schema


def kind_of_schema(schema: Dict[str, Any]) -> Kind:
    """Return the kind of values that a schema describes, without the hint's own classes."""
    content = schema.get(CONTENT)
    if content == JSON:
        return Documents(Any, schema)
    if content is not None:
        return media.MediaKind(media.CLASSES[content])
    if DATATYPE in schema:
        return Arrays(schema[DATATYPE], schema[DIMS], is_number=schema["type"] == "number")
    if "enum" in schema:
        return Choice(schema["enum"])
    depth, inner = 0, schema
    while inner.get("type") == "array":
        depth, inner = depth + 1, inner["items"]
    for python, element in ELEMENTS.items():
        is_bytes = "contentEncoding" in inner
        if inner.get("type") == element.json_type and is_bytes is (python is bytes):
            return Scalars(python, depth)
    raise HintError(f"there is no kind for {schema}")


# ------------------------------------------------------------- plain values


def plain_kind(hint: Any) -> Kind:
    """Return the kind that a hint names. Raises HintError."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and hint in ELEMENTS:
        return Scalars(hint)
    if origin is typing.Literal:
        return Choice(arguments)
    if origin is list and arguments:
        inner = plain_kind(arguments[0])
        if type(inner) is Scalars:
            return Scalars(inner.python, inner.depth + 1)
    if isinstance(hint, type) and issubclass(hint, Array):
        return Arrays(hint.datatype, hint.dims)
    if hint is np.ndarray or origin is np.ndarray:
        return Arrays(_element_of(arguments), [-1])
    raise HintError(
        f"a model cannot have {getattr(hint, '__name__', hint)!r}; "
        "use a list, a dict or a dataclass"
    )


def _element_of(arguments: Tuple[Any, ...]) -> str:
    """Return the type of `NDArray[np.float32]`; that of a plain array is FP32."""
    dtype = typing.get_args(arguments[1])[0] if len(arguments) > 1 else np.float32
    if not (isinstance(dtype, type) and issubclass(dtype, np.generic)):
        raise HintError("an array's hint must name the type of its elements: NDArray[np.float32]")
    name: str = np.dtype(dtype).name
    return name.replace("float", "FP").upper()


def without_end(hint: Any, end: type) -> Any:
    """Return the hint of a response, by that of a step's results: `list[str | None | End]`."""
    results = typing.get_args(hint)
    if typing.get_origin(hint) is not list or len(results) != 1:
        raise HintError("step needs a return hint such as -> list[str | None]")
    if typing.get_origin(results[0]) not in _UNIONS:
        return results[0]
    kinds = [each for each in typing.get_args(results[0]) if each not in (type(None), end)]
    return typing.Union[tuple(kinds)] if kinds else None


def without_none(hint: Any) -> Tuple[Any, bool]:
    """Return a hint without `None`, and whether it had that."""
    if typing.get_origin(hint) not in _UNIONS:
        return hint, False
    others = [each for each in typing.get_args(hint) if each is not type(None)]
    if len(others) != 1:
        raise HintError("a model cannot have values of several types")
    return others[0], True
