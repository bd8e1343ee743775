"""Names and kinds in a JSON configuration: unknown fields are errors, enums may be in any case.

Runs before protobuf reads a document, because Triton's protobuf accepts `type_fp32` for TYPE_FP32,
one value for a list of one and "true" for true, and names what is wrong by its place. Changes the
document; whether a value makes sense is checked elsewhere.
"""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from zmqtriton.config.errors import Problem
from zmqtriton_floor.errors import closest_match

#: The least and the greatest value of each kind of integer, by its number.
_INTEGERS = {
    FieldDescriptor.TYPE_INT32: ("TYPE_INT32", -(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_INT64: ("TYPE_INT64", -(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT32: ("TYPE_UINT32", 0, 2**32 - 1),
    FieldDescriptor.TYPE_UINT64: ("TYPE_UINT64", 0, 2**64 - 1),
}
_OTHERS = {
    FieldDescriptor.TYPE_BOOL: ("TYPE_BOOL", bool),
    FieldDescriptor.TYPE_STRING: ("TYPE_STRING", str),
}


def normalize_names(document: dict[str, Any], descriptor: Any, where: str = "") -> Problem | None:
    """Normalise enums; return the problem of the first unknown name, or None."""
    fields = {field.name: field for field in descriptor.fields}
    fields |= {field.json_name: field for field in descriptor.fields}
    for name, value in list(document.items()):
        field = fields.get(name)
        if not name:
            return Problem(f"{where}: Proto fields must have a name.")
        if field is None:
            place = f"({where})" if where else ""
            names = [one.name for one in descriptor.fields]
            return Problem(
                f"{place}{name}: Cannot find field.", suggestion=closest_match(name, names)
            )
        inside = f"{where}.{name}" if where else name
        if problem := _normalize_field(document, name, value, field, inside):
            return problem
    return None


def _normalize_field(
    document: dict[str, Any], name: str, value: Any, field: Any, where: str
) -> Problem | None:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        if isinstance(value, dict):
            inner = entry.fields_by_name["value"]
            for key in value:
                place = f'{where}["{key}"]'
                if problem := _normalize_value(value, key, inner, place):
                    return problem
        return None
    if isinstance(value, list) and not field.is_repeated:
        return Problem(f"{where}: Proto field is not repeating, cannot start list.")
    if field.is_repeated and value is not None:
        value = [one for one in value if one is not None] if isinstance(value, list) else [value]
        document[name] = value
        for index in range(len(value)):
            if problem := _normalize_value(value, index, field, f"{where}[{index}]"):
                return problem
        return None
    return _normalize_value(document, name, field, where)


def _normalize_value(holder: Any, key: str | int, field: Any, where: str) -> Problem | None:
    value = holder[key]
    if field.message_type is not None and isinstance(value, dict):
        return normalize_names(value, field.message_type, where)
    if field.type in _INTEGERS or field.type in _OTHERS:
        return _normalize_scalar(holder, key, field, where)
    if field.enum_type is None or not isinstance(value, str):
        return None
    names = field.enum_type.values_by_name
    # Numbers may be strings, as everywhere in this format.
    if value in names or value.lstrip("-").isdigit():
        return None
    if value.upper() in names:
        holder[key] = value.upper()
        return None
    kind = field.enum_type.full_name
    text = f'({where}): invalid value "{value}" for type type.googleapis.com/{kind}'
    return Problem(text, suggestion=closest_match(value.upper(), names))


def _normalize_scalar(holder: Any, key: str | int, field: Any, where: str) -> Problem | None:
    value = holder[key]
    if value is None:
        return None
    if field.type in _OTHERS:
        kind, expected = _OTHERS[field.type]
        if expected is bool and value in ("true", "false"):
            holder[key] = value == "true"
        elif type(value) is not expected:
            return _invalid(value, kind, where)
        return None
    kind, minimum, maximum = _INTEGERS[field.type]
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return _invalid(value, kind, where)
    is_whole = type(value) in (int, str) or (type(value) is float and number == value)
    return None if is_whole and minimum <= number <= maximum else _invalid(value, kind, where)


def _invalid(value: Any, kind: str, where: str) -> Problem:
    return Problem(f"({where}): invalid value {json.dumps(value)} for type {kind}")
