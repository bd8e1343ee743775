"""Where each field stands in a config.pbtxt: line and column by the path of the field.

Asked when something is wrong, so that the reason names a line; never on the way of a load that
goes well. Reads any text, right or wrong, as far as it can: the parser has the say over it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from zmqtriton.config.errors import ConfigError, Field, Problem

_TOKEN = re.compile(
    r"""(?P<skip>[\s]+|\#[^\n]*)
    |(?P<text>"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?)
    |(?P<word>[A-Za-z0-9_.+\-]+)
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_OPENING = {"{": "}", "<": ">"}
_DEEPEST = 100


class Position(NamedTuple):
    """Line and column from 1, and the word or text that stands there as the value, or ""."""

    line: int
    column: int
    value: str = ""


class Named(NamedTuple):
    """A field as it is written: the path to it, its name and its value if that is one word."""

    within: Field
    name: str
    place: Position


class Positions:
    """The places of one text."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._next = 0
        #: By the path with an index behind every name.
        self._places: dict[Field, Position] = {}
        #: In the order of the text.
        self.named: list[Named] = []
        self._read_fields((), "", 0)

    def find(self, field: Field) -> Position | None:
        """Of the field, else of what holds it; None if the text has nothing of it."""
        path: Field = ()
        place: Position | None = None
        for index, part in enumerate(field):
            if isinstance(part, int):
                continue
            following = field[index + 1] if index + 1 < len(field) else 0
            number = following if isinstance(following, int) else 0
            path = (*path, part, self._entry((*path, part), field[index + 1 : index + 2], number))
            if path not in self._places:
                break
            place = self._places[path]
        return place

    def values(self, field: Field) -> list[Position]:
        """Of a field that may be repeated, named by its path without an index of its own."""
        found: list[Position] = []
        while place := self._places.get((*field, len(found))):
            found.append(place)
        return found

    def _entry(self, path: Field, key: Field, number: int) -> int:
        """The number of a map's entry that has this key; of anything else what was asked for."""
        if not key or isinstance(key[0], int):
            return number
        for index in range(len(self.named)):
            entry = self._places.get((*path, index))
            if entry is None:
                break
            found = self._places.get((*path, index, "key", 0))
            if found is not None and found.value == key[0]:
                return index
        return number

    # ------------------------------------------------------------------ reading

    def _peek(self) -> str:
        return self._tokens[self._next][0] if self._next < len(self._tokens) else ""

    def _take(self) -> tuple[str, Position]:
        token = self._tokens[self._next]
        self._next += 1
        return token

    def _read_fields(self, within: Field, closing: str, depth: int) -> None:
        counts: dict[str, int] = defaultdict(int)
        while self._peek() and self._peek() != closing:
            name, place = self._take()
            if not (name[0].isalpha() or name[0] == "_"):
                continue
            self.named.append(Named(within, name, place))
            if self._peek() == ":":
                self._take()
            if self._peek() != "[":
                self._read_value(within, name, counts, place, depth)
                continue
            self._take()
            while self._peek() not in ("", "]"):
                if self._peek() == ",":
                    self._take()
                else:
                    self._read_value(within, name, counts, None, depth)
            self._skip("]")
        self._skip(closing)

    def _read_value(
        self, within: Field, name: str, counts: dict[str, int], place: Position | None, depth: int
    ) -> None:
        """One value of a field. A message stands at the name, in a list where it begins."""
        path = (*within, name, counts[name])
        counts[name] += 1
        opening = self._peek()
        if opening in _OPENING:
            _, start = self._take()
            self._places[path] = place or start
            if depth < _DEEPEST:
                self._read_fields(path, _OPENING[opening], depth + 1)
        elif opening:
            value, start = self._take()
            self._places[path] = Position(start.line, start.column, value.strip("\"'"))

    def _skip(self, sign: str) -> None:
        if sign and self._peek() == sign:
            self._take()


def _tokens(text: str) -> Iterator[tuple[str, Position]]:
    line, start = 1, 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        if match.lastgroup != "skip":
            yield token, Position(line, match.start() - start + 1)
        if newlines := token.count("\n"):
            line += newlines
            start = match.start() + token.rindex("\n") + 1


def locate(problem: Problem, path: Path | None, positions: Positions | None = None) -> Problem:
    """The problem with its place in the file; as it is where it has none there, or has one."""
    if path is None or problem.path or not problem.field:
        return problem
    place = (positions or read(path)).find(problem.field)
    if place is None:
        return replace(problem, path=str(path))
    return replace(problem, path=str(path), line=place.line, column=place.column)


def located(error: ConfigError, path: Path | None) -> ConfigError:
    """The error with the place of its problem."""
    return ConfigError(locate(error.problem, path))


def read(path: Path) -> Positions:
    """Of a file; a file that has gone meanwhile has nothing in it."""
    try:
        return Positions(path.read_text("utf-8", "replace"))
    except OSError:
        return Positions("")
