"""`response_format` of a request, and the check of a text by its schema.

JSON Schema is read as far as OpenAI's structured outputs have it. A schema comes from a client and
a value from a model, so both are bounded: the schema when it is read, the check by steps. `pattern`
and `format` are left to the engine, because a client's expression could run for ever here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from zmqtriton_extras.openai.fields import flag, member
from zmqtriton_extras.openai.problems import RefusedField

#: Schemas within one schema, how deep they lie, and values of all of its enumerations.
_MAX_SCHEMAS, _MAX_DEPTH, _MAX_VALUES = 5000, 40, 5000
#: Steps of one check; a usual answer takes some hundreds.
_MAX_STEPS = 200_000

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "number": (int, float),
    "integer": (int,),
}
#: Kinds of arguments of a keyword.
_SCHEMA, _SCHEMAS, _MAP, _NUMBER, _COUNT = "schema", "schemas", "map", "number", "count"
_NAMES, _KINDS, _VALUES, _VALUE, _REFERENCE, _NOTHING = (
    "names",
    "types",
    "values",
    "value",
    "reference",
    "nothing",
)
KEYWORDS = {
    "type": _KINDS,
    "enum": _VALUES,
    "const": _VALUE,
    "properties": _MAP,
    "additionalProperties": _SCHEMA,
    "required": _NAMES,
    "items": _SCHEMA,
    "prefixItems": _SCHEMAS,
    "anyOf": _SCHEMAS,
    "oneOf": _SCHEMAS,
    "allOf": _SCHEMAS,
    "$ref": _REFERENCE,
    "$defs": _MAP,
    "definitions": _MAP,
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _NUMBER),
    "multipleOf": _NUMBER,
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _COUNT),
    **dict.fromkeys(("minProperties", "maxProperties"), _COUNT),
    **dict.fromkeys(("title", "description", "default", "examples", "deprecated"), _NOTHING),
    **dict.fromkeys(("$schema", "$id", "$comment", "readOnly", "writeOnly"), _NOTHING),
    **dict.fromkeys(("discriminator", "pattern", "format"), _NOTHING),
}
FIELD = "response_format"
_PLAIN_TEXT, _JSON_OBJECT, _JSON_SCHEMA = "text", "json_object", "json_schema"
_FORMATS = (_PLAIN_TEXT, _JSON_OBJECT, _JSON_SCHEMA)


class UnusableSchemaError(Exception):
    """Raised for a schema that cannot be used: it is invalid, unsupported or too large."""


class _Misfit(Exception):
    """Raised for a value that does not fit."""


class _TooMuch(Exception):
    """Raised when a check takes too many steps."""


def parse(text: str) -> Any:
    """Return the value of a JSON text. Raises ValueError."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply: flatten it") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON: write a number or null")


class Schema:
    """A JSON schema that checks texts."""

    def __init__(self, document: Any) -> None:
        """Read a schema. Raises UnusableSchemaError."""
        self._document = document
        self._schemas = self._values = 0
        self._references: dict[str, Any] = {}
        self._read(document, 0)
        for reference in self._references:
            self._references[reference] = self._target(reference)

    def fault(self, text: str) -> str:
        """Return why a text is no value of the schema; "" if it is one."""
        try:
            value = parse(text)
        except ValueError:
            return "it is no JSON"
        try:
            _Check(self._references).value(value, self._document, "$")
        except _Misfit as misfit:
            return str(misfit)
        except (_TooMuch, RecursionError):
            return "it takes too long to be checked"
        return ""

    def _read(self, schema: Any, depth: int) -> None:
        if type(schema) is bool:
            return
        if type(schema) is not dict:
            raise UnusableSchemaError("a schema must be an object")
        self._schemas += 1
        if depth > _MAX_DEPTH or self._schemas > _MAX_SCHEMAS:
            raise UnusableSchemaError("it has too many or too deep schemas: make it smaller")
        for keyword, argument in schema.items():
            for inner in self._read_keyword(keyword, argument):
                self._read(inner, depth + 1)

    def _read_keyword(self, keyword: str, argument: Any) -> Iterator[Any]:
        """Check a keyword of a schema and its argument; yield the schemas in the argument."""
        kind = KEYWORDS.get(keyword)
        if kind is None:
            raise UnusableSchemaError(
                f"the keyword '{keyword[:64]}' is not supported: leave it out, or set strict to "
                "false"
            )
        if not _ARGUMENTS[kind](argument):
            raise UnusableSchemaError(
                f"the value of '{keyword}' has the wrong type: correct the schema"
            )
        if kind == _VALUES:
            self._values += len(argument)
            if self._values > _MAX_VALUES:
                raise UnusableSchemaError("its enumerations have too many values: use fewer")
        elif kind == _REFERENCE:
            self._references[argument] = None
        return _inner(kind, argument)

    def _target(self, reference: str) -> Any:
        """Return the schema that a reference names; it must be in the same document."""
        target = self._document
        steps = reference.removeprefix("#").split("/")
        if not reference.startswith("#") or steps[0]:
            raise UnusableSchemaError("'$ref' must begin with '#/'")
        for step in steps[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            target = target.get(name) if type(target) is dict else None
        # elsewhere there need not be schemas
        is_place = len(steps) == 1 or (len(steps) == 3 and steps[1] in ("$defs", "definitions"))
        if not is_place or type(target) is not dict:
            raise UnusableSchemaError(
                f"'$ref' must name a part of the schema, not '{reference[:64]}'"
            )
        return target


def _inner(kind: str, argument: Any) -> Iterator[Any]:
    if kind == _SCHEMA:
        yield argument
    elif kind == _SCHEMAS:
        yield from argument
    elif kind == _MAP:
        yield from argument.values()


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _are_names(value: Any) -> bool:
    return type(value) is list and all(type(name) is str for name in value)


def _are_types(value: Any) -> bool:
    names = [value] if type(value) is str else value
    return _are_names(names) and all(name in _TYPES for name in names)


_ARGUMENTS: dict[str, Callable[[Any], bool]] = {
    _SCHEMA: lambda value: type(value) in (dict, bool),
    _SCHEMAS: lambda value: type(value) is list and bool(value),
    _MAP: lambda value: type(value) is dict,
    _NUMBER: _is_number,
    _COUNT: _is_count,
    _NAMES: _are_names,
    _KINDS: _are_types,
    _VALUES: lambda value: type(value) is list,
    _VALUE: lambda value: True,
    _REFERENCE: lambda value: type(value) is str,
    _NOTHING: lambda value: True,
}


class _Check:
    """The check of one value."""

    def __init__(self, references: dict[str, Any]) -> None:
        self._references = references
        self._left = _MAX_STEPS

    def value(self, value: Any, schema: Any, path: str) -> None:
        """Raise _Misfit if a value does not fit, _TooMuch if the check takes too long."""
        if schema is True:
            return
        if schema is False:
            raise _Misfit(f"{path} may not be there")
        self._spend(1 + len(schema))
        if "$ref" in schema:
            self.value(value, self._references[schema["$ref"]], path)
        for keyword, is_fit in _SIMPLE.items():
            if keyword in schema:
                self._spend(_size(schema[keyword]))
                if not is_fit(value, schema[keyword]):
                    raise _Misfit(f"{path} does not fit '{keyword}'")
        self._any(value, schema, path)
        if type(value) is dict:
            self._object(value, schema, path)
        elif type(value) is list:
            self._array(value, schema, path)

    def _any(self, value: Any, schema: dict[str, Any], path: str) -> None:
        for part in schema.get("allOf", ()):
            self.value(value, part, path)
        for keyword, is_fit in (("anyOf", any), ("oneOf", _is_one)):
            parts = schema.get(keyword)
            if parts and not is_fit(self._fits(value, part, path) for part in parts):
                raise _Misfit(f"{path} does not fit '{keyword}'")

    def _fits(self, value: Any, schema: Any, path: str) -> bool:
        try:
            self.value(value, schema, path)
        except _Misfit:
            return False
        return True

    def _object(self, value: dict[str, Any], schema: dict[str, Any], path: str) -> None:
        properties = schema.get("properties", {})
        others = schema.get("additionalProperties", True)
        self._spend(len(value))
        for name, inner in value.items():
            self.value(inner, properties.get(name, others), f"{path}.{name[:64]}")

    def _array(self, value: list[Any], schema: dict[str, Any], path: str) -> None:
        first = schema.get("prefixItems", [])
        others = schema.get("items", True)
        self._spend(len(value))
        for number, inner in enumerate(value):
            one = first[number] if number < len(first) else others
            self.value(inner, one, f"{path}[{number}]")

    def _spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise _TooMuch


def _is_one(fits: Iterator[bool]) -> bool:
    return sum(fits) == 1


def _size(argument: Any) -> int:
    return len(argument) if type(argument) is list else 1


def _has_type(value: Any, names: Any) -> bool:
    for name in [names] if type(names) is str else names:
        if type(value) in _TYPES[name]:
            return True
        if name == "integer" and type(value) is float and value.is_integer():
            return True
    return False


def _is_same(value: Any, other: Any) -> bool:
    # to Python true is 1
    return (type(value) is bool) == (type(other) is bool) and bool(value == other)


def _is_multiple(value: Any, step: Any) -> bool:
    if not _is_number(value) or not step:
        return True
    if type(value) is int and type(step) is int:
        return value % step == 0
    try:
        ratio = value / step
    except OverflowError:
        return True
    return abs(ratio - round(ratio)) < 1e-9 if abs(ratio) < 1e300 else True


def _for_numbers(is_fit: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda value, argument: not _is_number(value) or is_fit(value, argument)


def _for_sizes(kind: Any, is_fit: Callable[[int, int], bool]) -> Callable[[Any, Any], bool]:
    def has_fit(value: Any, argument: Any) -> bool:
        return type(value) is not kind or is_fit(len(value), argument)

    return has_fit


def _at_least(value: Any, limit: Any) -> bool:
    return bool(value >= limit)


def _at_most(value: Any, limit: Any) -> bool:
    return bool(value <= limit)


#: Checks of a value against a keyword's argument, by keyword.
_SIMPLE: dict[str, Callable[[Any, Any], bool]] = {
    "type": _has_type,
    "enum": lambda value, values: any(_is_same(value, one) for one in values),
    "const": _is_same,
    "required": lambda value, names: type(value) is not dict or all(n in value for n in names),
    "minimum": _for_numbers(_at_least),
    "maximum": _for_numbers(_at_most),
    "exclusiveMinimum": _for_numbers(lambda value, limit: value > limit),
    "exclusiveMaximum": _for_numbers(lambda value, limit: value < limit),
    "multipleOf": _is_multiple,
    "minLength": _for_sizes(str, _at_least),
    "maxLength": _for_sizes(str, _at_most),
    "minItems": _for_sizes(list, _at_least),
    "maxItems": _for_sizes(list, _at_most),
    "minProperties": _for_sizes(dict, _at_least),
    "maxProperties": _for_sizes(dict, _at_most),
}


class Format(NamedTuple):
    """The form of a text that a client requests, such as JSON of a schema."""

    #: The field that has it.
    field: str = FIELD
    #: OpenAI's document for the engine; None for any text.
    document: dict[str, Any] | None = None
    #: Answers are checked by it.
    schema: Schema | None = None

    @property
    def is_checked(self) -> bool:
        return self.document is not None and (
            self.schema is not None or self.document["type"] == _JSON_OBJECT
        )

    @property
    def json_schema(self) -> Any:
        """The schema as the client wrote it; None if any JSON is right."""
        return (self.document or {}).get(_JSON_SCHEMA, {}).get("schema")

    def fault(self, text: str) -> str:
        """Return why a complete answer does not have the form; "" if it has."""
        if self.schema is not None:
            return self.schema.fault(text)
        try:
            is_object = type(parse(text)) is dict
        except ValueError:
            return "it is no JSON"
        return "" if is_object else "it is no JSON object"


ANY_TEXT = Format()


def of_schema(name: str, schema: Any, *, is_strict: bool = True) -> dict[str, Any]:
    """Return the document for JSON of a schema."""
    return {
        "type": _JSON_SCHEMA,
        _JSON_SCHEMA: {"name": name, "schema": schema, "strict": is_strict},
    }


def read_format(fields: dict[str, Any], field: str = FIELD) -> Format:
    """Read the form that a chat or completion requests. Raises RefusedField."""
    document = member(fields, field.rpartition(".")[2], field)
    if document is None or document.get("type") == _PLAIN_TEXT:
        return ANY_TEXT
    if document.get("type") not in _FORMATS:
        raise RefusedField(f"'{field}.type' must be one of {', '.join(_FORMATS)}", f"{field}.type")
    if document["type"] == _JSON_OBJECT:
        return Format(field, {"type": _JSON_OBJECT})
    inner = member(document, _JSON_SCHEMA, f"{field}.{_JSON_SCHEMA}")
    if inner is None:
        raise RefusedField(f"'{field}.{_JSON_SCHEMA}' must be an object", f"{field}.{_JSON_SCHEMA}")
    return _of_schema(inner, field, f"{field}.{_JSON_SCHEMA}")


def read_flat_format(fields: dict[str, Any], field: str) -> Format:
    """Read the form from a request of the Responses API, where the schema is in `field` itself."""
    document = member(fields, field.rpartition(".")[2], field)
    if document is not None and document.get("type") == _JSON_SCHEMA:
        return _of_schema(document, field, field)
    return read_format(fields, field)


def _of_schema(described: dict[str, Any], field: str, place: str) -> Format:
    name, schema = described.get("name"), described.get("schema")
    if type(name) is not str or not 0 < len(name) <= 64:
        raise RefusedField(f"'{place}.name' must be a name of up to 64 letters", f"{place}.name")
    if type(schema) is not dict:
        raise RefusedField(f"'{place}.schema' must be an object", f"{place}.schema")
    is_strict = flag(described, "strict")
    try:
        checked = Schema(schema) if is_strict else None
    except UnusableSchemaError as error:
        raise RefusedField(f"'{place}.schema' is unusable: {error}", f"{place}.schema") from None
    return Format(field, of_schema(name, schema, is_strict=is_strict), checked)
