"""Names in a configuration in JSON: those that nobody knows, and enums in any case.

Called by `pbtxt` before protobuf reads a document, because Triton's protobuf takes `type_fp32` for
TYPE_FP32 and names an unknown field by its place. Changes the document; values are not its work.
"""

from __future__ import annotations

from typing import Any

from zmqtriton.config.errors import Problem, closest


def adapt(document: dict[str, Any], descriptor: Any, where: str = "") -> Problem | None:
    """What is wrong with the first name that is unknown; None if all are known."""
    fields = {field.name: field for field in descriptor.fields}
    fields |= {field.json_name: field for field in descriptor.fields}
    for name, value in document.items():
        field = fields.get(name)
        if field is None:
            place = f"({where})" if where else ""
            known = [known.name for known in descriptor.fields]
            return Problem(f"{place}{name}: Cannot find field.", meant=closest(name, known))
        inside = f"{where}.{name}" if where else name
        if problem := _adapt_field(document, name, value, field, inside):
            return problem
    return None


def _adapt_field(
    document: dict[str, Any], name: str, value: Any, field: Any, where: str
) -> Problem | None:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        if isinstance(value, dict):
            inner = entry.fields_by_name["value"]
            for key in value:
                place = f'{where}["{key}"]'
                if problem := _adapt_one(value, key, inner, place):
                    return problem
        return None
    if field.is_repeated and isinstance(value, list):
        for index in range(len(value)):
            if problem := _adapt_one(value, index, field, f"{where}[{index}]"):
                return problem
        return None
    return _adapt_one(document, name, field, where)


def _adapt_one(holder: Any, key: str | int, field: Any, where: str) -> Problem | None:
    value = holder[key]
    if field.message_type is not None and isinstance(value, dict):
        return adapt(value, field.message_type, where)
    if field.enum_type is None or not isinstance(value, str):
        return None
    names = field.enum_type.values_by_name
    # Numbers may be texts, as everywhere in this format.
    if value in names or value.lstrip("-").isdigit():
        return None
    if value.upper() in names:
        holder[key] = value.upper()
        return None
    kind = field.enum_type.full_name
    text = f'({where}): invalid value "{value}" for type type.googleapis.com/{kind}'
    return Problem(text, meant=closest(value.upper(), names))
