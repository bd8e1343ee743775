"""Names in a JSON configuration: unknown fields are errors, enums may be in any case.

Runs before protobuf reads a document, because Triton's protobuf accepts `type_fp32` for TYPE_FP32
and names an unknown field by its place. Changes the document; values are checked elsewhere.
"""

from __future__ import annotations

from typing import Any

from zmqtriton.config.errors import Problem, closest_match


def normalize_names(document: dict[str, Any], descriptor: Any, where: str = "") -> Problem | None:
    """Normalise enums; return the problem of the first unknown name, or None."""
    fields = {field.name: field for field in descriptor.fields}
    fields |= {field.json_name: field for field in descriptor.fields}
    for name, value in document.items():
        field = fields.get(name)
        if field is None:
            place = f"({where})" if where else ""
            known = [known.name for known in descriptor.fields]
            return Problem(
                f"{place}{name}: Cannot find field.", suggestion=closest_match(name, known)
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
    if field.is_repeated and isinstance(value, list):
        for index in range(len(value)):
            if problem := _normalize_value(value, index, field, f"{where}[{index}]"):
                return problem
        return None
    return _normalize_value(document, name, field, where)


def _normalize_value(holder: Any, key: str | int, field: Any, where: str) -> Problem | None:
    value = holder[key]
    if field.message_type is not None and isinstance(value, dict):
        return normalize_names(value, field.message_type, where)
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
