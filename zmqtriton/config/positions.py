"""Finds line and column of each field in a config.pbtxt, and all unknown names.

Used when something is wrong, so that the reason names a line; never by a load that succeeds. Reads
any text, right or wrong, as far as it can: only the parser judges it. The parser stops at the first
unknown name, but this module continues; fields and enums are known by the descriptors.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import zmqtriton_protos
from zmqtriton.config.errors import ConfigError, FieldPath, Problem
from zmqtriton_floor.errors import closest_match

_TOKEN = re.compile(
    r"""(?P<skip>[\s]+|\#[^\n]*)
    |(?P<text>"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?)
    |(?P<word>[A-Za-z0-9_.+\-]+)
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_CLOSING_SIGN_BY_OPENING = {"{": "}", "<": ">"}
_MAX_DEPTH = 100


class Position(NamedTuple):
    """Line and column from 1, and the word or text that is the value there, or ""."""

    line: int
    column: int
    value: str = ""


class NamedField(NamedTuple):
    """A field as it is written: its path, its name, and its value if that is one word."""

    parent: FieldPath
    name: str
    position: Position


class PositionIndex:
    """The places of the fields in one text."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokenize(text))
        self._token_index = 0
        #: Places of fields by their path, with an index after every name.
        self._positions: dict[FieldPath, Position] = {}
        #: Fields in the order of the text.
        self.fields: list[NamedField] = []
        self._read_fields((), "", 0)

    def find(self, field: FieldPath) -> Position | None:
        """Return the place of a field, or of the message that contains it; None without a place."""
        path: FieldPath = ()
        place: Position | None = None
        for index, part in enumerate(field):
            if isinstance(part, int):
                continue
            following = field[index + 1] if index + 1 < len(field) else 0
            number = following if isinstance(following, int) else 0
            path = (
                *path,
                part,
                self._map_entry_index((*path, part), field[index + 1 : index + 2], number),
            )
            if path not in self._positions:
                break
            place = self._positions[path]
        return place

    def value_positions(self, field: FieldPath) -> list[Position]:
        """Return the places of a field that may be repeated; its path has no index at the end."""
        positions: list[Position] = []
        while place := self._positions.get((*field, len(positions))):
            positions.append(place)
        return positions

    def _map_entry_index(self, path: FieldPath, key: FieldPath, number: int) -> int:
        """Return the number of the map entry with this key; anything else is returned unchanged."""
        if not key or isinstance(key[0], int):
            return number
        entries = range(len(self.value_positions(path)))
        numbers = {
            place.value: index
            for index in reversed(entries)  # of two with one key the first counts
            if (place := self._positions.get((*path, index, "key", 0)))
        }
        return numbers.get(key[0], number)

    # ------------------------------------------------------------------ reading

    def _peek(self) -> str:
        return self._tokens[self._token_index][0] if self._token_index < len(self._tokens) else ""

    def _next_token(self) -> tuple[str, Position]:
        token = self._tokens[self._token_index]
        self._token_index += 1
        return token

    def _read_fields(self, within: FieldPath, closing: str, depth: int) -> None:
        counts: dict[str, int] = defaultdict(int)
        while self._peek() and self._peek() != closing:
            name, place = self._next_token()
            if not (name[0].isalpha() or name[0] == "_"):
                continue
            self.fields.append(NamedField(within, name, place))
            if self._peek() == ":":
                self._next_token()
            if self._peek() != "[":
                self._read_value(within, name, counts, place, depth)
                continue
            self._next_token()
            while self._peek() not in ("", "]"):
                if self._peek() == ",":
                    self._next_token()
                else:
                    self._read_value(within, name, counts, None, depth)
            self._skip("]")
        self._skip(closing)

    def _read_value(
        self,
        within: FieldPath,
        name: str,
        counts: dict[str, int],
        place: Position | None,
        depth: int,
    ) -> None:
        """Read a value of a field, and keep its place.

        The place of a message is its name, or its beginning if it is in a list.
        """
        path = (*within, name, counts[name])
        counts[name] += 1
        opening = self._peek()
        if opening in _CLOSING_SIGN_BY_OPENING:
            _, start = self._next_token()
            self._positions[path] = place or start
            if depth < _MAX_DEPTH:
                self._read_fields(path, _CLOSING_SIGN_BY_OPENING[opening], depth + 1)
        elif opening:
            value, start = self._next_token()
            self._positions[path] = Position(start.line, start.column, value.strip("\"'"))

    def _skip(self, sign: str) -> None:
        if sign and self._peek() == sign:
            self._next_token()


def _tokenize(text: str) -> Iterator[tuple[str, Position]]:
    line, start = 1, 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        if match.lastgroup != "skip":
            yield token, Position(line, match.start() - start + 1)
        if newlines := token.count("\n"):
            line += newlines
            start = match.start() + token.rindex("\n") + 1


def locate(problem: Problem, path: Path | None, positions: PositionIndex | None = None) -> Problem:
    """Return the problem with its place in the file, if it lacks one that can be found."""
    if path is None or problem.path or not problem.field:
        return problem
    place = (positions or read_positions(path)).find(problem.field)
    if place is None:
        return replace(problem, path=str(path))
    return replace(problem, path=str(path), line=place.line, column=place.column)


def locate_error(error: ConfigError, path: Path | None) -> ConfigError:
    """Return the error with the place of its problem."""
    return ConfigError(locate(error.problem, path))


def read_positions(path: Path) -> PositionIndex:
    """Read the places in a file; none if the file has been removed meanwhile."""
    try:
        return PositionIndex(path.read_text("utf-8", "replace"))
    except OSError:
        return PositionIndex("")


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
