"""Checks JSON values against hints, with pydantic if it is installed, or else by this file alone.

An adapter belongs to one hint. It has the JSON schema of the hint, and converts a parsed JSON value
into the Python value that the function gets. It does not convert a text to a number, except in
pydantic models, which have their own rules.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from zmqtriton_extras.functions.backend.kinds import (
    BASE64,
    HintError,
    MismatchError,
    Scalars,
    convert_all,
    element_kind,
    from_base64,
    named,
    raise_all,
)
from zmqtriton_floor.sdk import described

#: Origins of the hints `Union[X, Y]` and, from Python 3.10 on, `X | Y`.
UNIONS = (typing.Union, getattr(types, "UnionType", typing.Union))
_EXTRAS: Any = {"include_extras": True} if hasattr(typing, "Annotated") else {}
#: Maximum number of errors in a value that are read; above it, only their number is reported.
_MAX_ERRORS = 10_000
#: Number of elements of a list that are checked at a time.
_PIECE = 8192
#: Names in places of pydantic's errors that are not a client's: members of unions, and keys.
_TAGS = ("bool", "bytes", "dict", "float", "int", "list", "none", "str", "[key]")
#: Types of core schemas that become strict, and those that refuse unknown fields.
_SCALARS, _RECORDS = {"int", "float", "bool", "str"}, {"typed-dict", "dataclass-args"}
#: Converts the URL-safe base64 of pydantic to standard base64.
_URL_SAFE = str.maketrans("-_", "+/")
#: Fields of core schemas that are copied unchanged; keys are always texts in JSON.
_OTHERS = {"default", "expected", "function", "keys_schema", "members", "metadata", "serialization"}


def hints_of(function: Any) -> Dict[str, Any]:
    """Return the type hints of a function or a class by name, including their `Annotated`."""
    return typing.get_type_hints(function, **_EXTRAS)


def adapter_of(hint: Any) -> Any:
    """Return the object that checks and converts the JSON values of a hint. Raises HintError."""
    try:
        import pydantic  # only for documents: it takes a while
    except ImportError:
        return _plain(hint)
    return _Adapter(hint, pydantic) if hasattr(pydantic, "TypeAdapter") else _plain(hint)


class _Adapter:
    """Checks and converts the JSON values of one hint with pydantic."""

    def __init__(self, hint: Any, pydantic: Any) -> None:
        import pydantic_core

        _register(hint, [])
        try:
            adapter = pydantic.TypeAdapter(hint)
            schema = adapter.json_schema()
        except (pydantic.PydanticUserError, NameError, TypeError) as error:
            text = str(error).partition("\n")[0]
            raise HintError(f"pydantic has no JSON for it: {text}") from None
        self.schema = _inlined(schema, schema.get("$defs", {}), ())
        self._names = {*_names(self.schema), *_TAGS}
        self._validator = pydantic_core.SchemaValidator(_strict(adapter.core_schema))
        self._error = pydantic_core.ValidationError
        self._is_list = typing.get_origin(hint) is list

    def read(self, document: Any) -> Any:
        """Convert a parsed JSON value into the value of the hint. Raises MismatchError."""
        if not (self._is_list and type(document) is list):
            return self._read(document, 0)
        steps = range(0, len(document), _PIECE)  # other threads run between them
        return [each for at in steps for each in self._read(document[at : at + _PIECE], at)]

    def _read(self, document: Any, first: int) -> Any:
        """Convert a JSON value, or a part of a list that begins at the index `first`."""
        try:
            return self._validator.validate_python(document)
        except self._error as error:
            count = error.error_count()
            if count > _MAX_ERRORS:
                raise MismatchError(f"{count} values are wrong") from None
            rows = error.errors(include_url=False)
        raise_all([self._mismatch(each, first) for each in rows])

    def _mismatch(self, row: Any, first: int) -> MismatchError:
        text = row["msg"].replace("\n", " ")
        if row["type"] == "union_tag_invalid":  # its text has the client's value
            text = f"expected one of the tags {row['ctx']['expected_tags']}"
        elif row["type"].endswith(("_type", "_parsing")):
            text += f", got {described(row['input'])}"
        place = [*row["loc"]]
        if first:
            place[0] += first
        is_own = [type(each) is int or each in self._names for each in place]
        return MismatchError(text, *[n if own else named(n) for n, own in zip(place, is_own)])


def _names(schema: Any) -> Any:
    """Iterate over the names of all fields in a JSON schema, at any depth."""
    if isinstance(schema, dict):
        yield from schema.get("properties", ())
        schema = list(schema.values())
    for each in schema if isinstance(schema, list) else ():
        yield from _names(each)


def _inlined(schema: Any, definitions: Dict[str, Any], around: Tuple[str, ...]) -> Any:
    """Return a JSON schema with each `$ref` replaced by its definition.

    A type that contains itself is only `object` at the inner place.
    """
    if isinstance(schema, list):
        return [_inlined(each, definitions, around) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if len(schema.get("allOf", ())) == 1:  # as pydantic 2.7 writes a reference with more
        schema = {**schema["allOf"][0], **{n: v for n, v in schema.items() if n != "allOf"}}
    name = schema.get("$ref", "").rpartition("/")[2]
    if name and name in around:
        return {"type": "object"}
    rows = {**definitions.get(name, {}), **schema}
    inner = {n: _inlined(v, definitions, (*around, name)) for n, v in rows.items() if n[0] != "$"}
    return {**inner, **BASE64} if inner.get("format") == "binary" else inner


def _strict(schema: Any) -> Any:
    """Return a copy of a pydantic-core schema that does not convert scalars, and decodes base64."""
    if isinstance(schema, (list, tuple)):
        return type(schema)([_strict(each) for each in schema])
    kind = schema.get("type") if isinstance(schema, dict) else "model"
    if kind == "model":
        return schema
    own = {n: v if n in _OTHERS else _strict(v) for n, v in schema.items()}
    if not isinstance(kind, str):
        return own  # fields by name, one of which is `type`
    if kind in _SCALARS:
        own["strict"] = True
    elif kind in _RECORDS:
        own.setdefault("extra_behavior", "forbid")
    elif kind == "generator":  # it would be checked while the function reads it
        own["type"] = "list"
    elif kind == "bytes":
        function = {"type": "no-info", "function": _bytes_of}
        return {"type": "function-before", "function": function, "schema": own}
    return own


def _bytes_of(document: Any) -> Any:
    try:
        is_text = isinstance(document, str)
        return from_base64(document.translate(_URL_SAFE), Scalars(bytes)) if is_text else document
    except MismatchError as error:
        raise ValueError(str(error)) from None


def _register(hint: Any, seen: List[Any]) -> None:
    """Let pydantic accept `typing.TypedDict` in a hint, which it refuses before Python 3.12."""
    if hint in seen:
        return
    seen.append(hint)
    for each in typing.get_args(hint):
        _register(each, seen)
    fields, required = fields_of(hint)
    for each in fields.values():
        _register(each, seen)
    if type(hint).__module__ != "typing" or not hasattr(hint, "__total__"):
        return
    from typing_extensions import NotRequired, TypedDict

    rows = {n: each if n in required else NotRequired[each] for n, each in fields.items()}
    twin = TypedDict(hint.__name__, rows)  # type: ignore[misc]
    hint.__get_pydantic_core_schema__ = lambda source, handler: handler.generate_schema(twin)


# ------------------------------------------------------- without pydantic


def fields_of(hint: Any) -> Tuple[Dict[str, Any], Any]:
    """Return the hints of the fields of a dataclass or TypedDict, and the names of required fields.

    Any other hint has no fields.
    """
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        missing = dataclasses.MISSING
        needed = {
            each.name
            for each in dataclasses.fields(hint)
            if each.default is missing and each.default_factory is missing
        }
        return hints_of(hint), needed
    if hasattr(hint, "__total__"):
        own = {name: _unwrapped(each) for name, each in hints_of(hint).items()}
        return own, getattr(hint, "__required_keys__", own if hint.__total__ else ())
    return {}, ()


def _unwrapped(hint: Any) -> Any:
    """Return a hint without `Required` or `NotRequired`."""
    is_mark = getattr(typing.get_origin(hint), "_name", "") in ("Required", "NotRequired")
    return typing.get_args(hint)[0] if is_mark else hint


def without_none(hint: Any) -> Tuple[Any, bool]:
    """Return a hint without `| None`, and whether `None` was allowed."""
    if hasattr(hint, "__metadata__"):
        inner, is_nullable = without_none(hint.__origin__)
        parts = (inner, *hint.__metadata__)
        return (typing.Annotated[parts] if is_nullable else hint), is_nullable
    if typing.get_origin(hint) not in UNIONS:
        return hint, False
    arguments = typing.get_args(hint)
    others = tuple([each for each in arguments if each is not type(None)])
    return typing.Union[others], len(others) < len(arguments)


class _PlainAdapter(NamedTuple):
    """Checks and converts the JSON values of one hint without pydantic.

    It supports lists, dicts, dataclasses, TypedDicts, enums and scalars.
    """

    schema: Dict[str, Any]
    #: Returns the value of a document. Raises MismatchError.
    read: Callable[[Any], Any]


def _plain(hint: Any, around: Tuple[Any, ...] = ()) -> _PlainAdapter:
    """Return the adapter of a hint without pydantic. Raises HintError.

    `around` has the types that contain this hint. A type that contains itself is only `object` in
    the schema at the inner place.
    """
    hint, is_nullable = without_none(hint)
    origin, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    fields, needed = fields_of(hint)
    schema: Dict[str, Any]
    if is_nullable:
        inner = _plain(hint, around)
        schema = {"anyOf": [inner.schema, {"type": "null"}]}
        return _PlainAdapter(schema, lambda each: each if each is None else inner.read(each))
    if hint is Any:
        return _PlainAdapter({}, lambda each: each)
    if hint in (None, type(None)):
        return _PlainAdapter({"type": "null"}, lambda each: _expect(type(None), each))
    if fields and hint in around:
        return _PlainAdapter({"type": "object"}, lambda each: _plain(hint).read(each))
    if fields:
        inners = {name: _plain(each, (*around, hint)) for name, each in fields.items()}
        properties = {name: each.schema for name, each in inners.items()}
        schema = {"type": "object", "properties": properties, "required": sorted(needed)}
        return _PlainAdapter(schema, lambda each: hint(**_read_record(inners, needed, each)))
    if origin is dict and arguments[:1] in ((), (str,), (Any,)):
        inner = _plain((*arguments, Any, Any)[1], around)
        schema = {"type": "object", "additionalProperties": inner.schema}
        return _PlainAdapter(schema, lambda each: _read_dict(inner, each))
    if origin is list:
        inner = _plain((*arguments, Any)[0], around)
        return _PlainAdapter(
            {"type": "array", "items": inner.schema}, lambda each: _read_list(inner, each)
        )
    return _scalar(hint)


def _expect(kind: type, document: Any) -> Any:
    if not isinstance(document, kind):
        raise MismatchError(f"expected {kind.__name__}, got {described(document)}")
    return document


def _read_list(inner: _PlainAdapter, document: Any) -> List[Any]:
    rows = ((n, (each,)) for n, each in enumerate(_expect(list, document)))
    return convert_all(rows, inner.read)


def _read_dict(inner: _PlainAdapter, document: Any) -> Dict[str, Any]:
    rows = ((named(name), (each,)) for name, each in _expect(dict, document).items())
    return dict(zip(document, convert_all(rows, inner.read)))


def _read_record(inners: Dict[str, _PlainAdapter], needed: Any, document: Any) -> Dict[str, Any]:
    """Convert the fields of a JSON object for a dataclass or TypedDict. Raises MismatchError."""
    others = sorted(_expect(dict, document).keys() - inners.keys())
    names = [*(name for name in inners if name in needed or name in document), *others]

    def read(name: str) -> Any:
        if name not in inners:
            raise MismatchError(f"there is no such field; there are: {', '.join(inners)}")
        if name not in document:
            raise MismatchError("expected a value, got nothing")
        return inners[name].read(document[name])

    rows = [(name if name in inners else named(name), (name,)) for name in names]
    return dict(zip(names, convert_all(rows, read)))


def _scalar(hint: Any) -> _PlainAdapter:
    """Return the adapter of a scalar, `Literal` or `Enum`. Any other hint raises HintError."""
    kind: Any = element_kind(hint)
    if kind is None:
        raise HintError(
            f"{getattr(hint, '__name__', hint)} needs pydantic in the model's Python: "
            "pip install pydantic"
        )

    def read(document: Any) -> Any:
        if hint is int and type(document) is int:  # of any size
            return document
        return kind.decode(kind.encode(kind.from_json(document)))

    return _PlainAdapter(kind.schema, read)
