"""Unknown names in a config.pbtxt: all of them, where the parser stops at the first.

Knows fields and enums by the descriptors; all other checks of values are the parser's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import zmqtriton_protos
from zmqtriton.config.errors import FieldPath, Problem
from zmqtriton.config.positions import Position, PositionIndex
from zmqtriton_floor.errors import closest_match


def unknown_name_problems(positions: PositionIndex, path: str) -> Iterator[Problem]:
    """Return unknown fields and enum values, in the order of the text."""
    for named in positions.fields:
        holder = _descriptor_at(named.parent)
        if holder is None:
            continue
        field = holder.fields_by_name.get(named.name)
        if field is None:
            text = f'Message type "{holder.full_name}" has no field named "{named.name}".'
            names = [field.name for field in holder.fields]
            yield _unknown_name_problem(
                path, named.position, text, closest_match(named.name, names)
            )
        elif field.enum_type is not None:
            yield from _unknown_enum_value_problems(
                positions, (*named.parent, named.name), field, path
            )


def _descriptor_at(within: FieldPath) -> Any:
    """Return the descriptor that the path leads to; None if it leads through an unknown field."""
    message = zmqtriton_protos.ModelConfig.DESCRIPTOR
    for name in within:
        if isinstance(name, int):
            continue
        field = message.fields_by_name.get(name)
        if field is None or field.message_type is None:
            return None
        message = field.message_type
    return message


def _unknown_enum_value_problems(
    positions: PositionIndex, field: FieldPath, descriptor: Any, path: str
) -> Iterator[Problem]:
    names = descriptor.enum_type.values_by_name
    for place in positions.value_positions(field):
        if place.value not in names and not place.value.lstrip("-").isdigit():
            text = f'Enum type "{descriptor.enum_type.full_name}" has no value named {place.value}.'
            yield _unknown_name_problem(path, place, text, closest_match(place.value, names))


def _unknown_name_problem(path: str, place: Position, detail: str, meant: str) -> Problem:
    return Problem(
        f"failed to read text proto from {path}",
        suggestion=meant,
        path=path,
        line=place.line,
        column=place.column,
        detail=detail,
    )
