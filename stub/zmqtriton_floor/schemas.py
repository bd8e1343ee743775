"""Readers of msgpack arrays, compiled from the annotations of NamedTuples.

Nothing that another process sends is believed: each field of each message is checked. A reader is
straight code, written for its class when it is first used, because every request passes several.
Knows kinds of fields, and nothing of what messages mean.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any, Callable, Iterator, NoReturn

from zmqtriton_floor.errors import ProtocolError

#: Maximum number of elements of a list in a message.
MAX_ROWS = 4096
MAX_DOCUMENT = 1 << 26  # characters

INTEGERS = {
    **{"Count": (0, 2**63 - 1), "Number": (-(2**63), 2**63 - 1)},
    **{"Code": (0, 599), "Flags": (0, 2**32 - 1)},
}
LENGTHS = {
    **{"Name": (str, 0, 1024), "Text": (str, 0, 1 << 16)},
    "Document": (str, 0, MAX_DOCUMENT),
    "Blob": (bytes, 0, 1 << 26),
    "Token": (bytes, 16, 16),
}
#: Ends a kind that may also be None.
_OPTIONAL = " | None"
_SCALARS = (bool, int, float, str)


#: The expressions that are true if a field has a value of its kind; others are lists.
_CONDITIONS = {
    **{
        kind: f"type({{0}}) is int and {low} <= {{0}} <= {high}"
        for kind, (low, high) in INTEGERS.items()
    },
    **{
        kind: f"type({{0}}) is {of.__name__} and {low} <= len({{0}}) <= {high}"
        for kind, (of, low, high) in LENGTHS.items()
    },
    "Correlation": "0 <= {0} < 2**64 if type({0}) is int else "
    "type({0}) is str and len({0}) <= 1024",
    "Ids": "type({0}) is list and len({0}) <= {1} and "
    "not any(type(x) is not int or x < 0 for x in {0})",
    "Values": "type({0}) is dict and len({0}) <= 64 and all(map(is_value, {0}.items()))",
}
_ROWS = "type({0}) is list and len({0}) <= {1}"
_OPTIONAL_ROW = "{0} is None or type({0}) is list"
#: The types that a field may have; others have lists.
_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(INTEGERS, (int,)),
    **{kind: (of,) for kind, (of, _, _) in LENGTHS.items()},
    **{"Correlation": (int, str), "Values": (dict,)},
}


def _condition(field: str, kind: str) -> str:
    form = _CONDITIONS.get(kind, _OPTIONAL_ROW if kind.endswith(_OPTIONAL) else _ROWS)
    return form.format(field, MAX_ROWS)


class Schema:
    """The fields of one class, and the reader of its arrays."""

    def __init__(self, cls: type[Any], schemas: dict[str, Schema]) -> None:
        """Set up; `schemas` has the schemas of the rows that a list in this class may hold."""
        self.cls = cls
        self._name = str(cls.__name__)
        self.fields: tuple[str, ...] = cls._fields
        self.kinds: list[str] = list(cls.__annotations__.values())
        self._schemas = schemas

    @cached_property
    def read(self) -> Callable[[Any], Any]:
        """Return a list as a message or row; ProtocolError names the offending field."""
        namespace: dict[str, Any] = {
            "new": tuple.__new__,
            "is_value": lambda item: type(item[0]) is str and type(item[1]) in _SCALARS,
        }
        lines = [
            "def read(row):",
            *self._checks(namespace, "row"),
            f"return new({self._name}, row)",
        ]
        code = compile("\n ".join(lines), f"<reader of {self._name}>", "exec")
        exec(code, namespace)  # what is written in this file and in wire.py
        reader: Callable[[Any], Any] = namespace["read"]
        return reader

    def _checks(self, namespace: dict[str, Any], row: str, prefix: str = "") -> Iterator[str]:
        """Yield lines of code that check a list, and make its inner lists rows of their classes.

        The names that these lines use are put into `namespace`.
        """
        name = self._name
        namespace[name] = self.cls
        namespace[f"refuse_{name}"], namespace[f"refuse_row_{name}"] = (
            self._refuse,
            self._refuse_row,
        )
        yield f"if type({row}) is not list: refuse_row_{name}()"
        if self.fields:
            yield f"try: {', '.join(prefix + field for field in self.fields)}, = {row}"
            yield f"except ValueError: refuse_row_{name}()"
        else:
            yield f"if {row}: refuse_row_{name}()"
        for number, (field, kind) in enumerate(zip(self.fields, self.kinds)):
            value = prefix + field
            yield f"if not ({_condition(value, kind)}): refuse_{name}({number}, {value})"
            if kind.startswith("list[") and prefix:
                of = kind[5:-1]
                namespace[f"read_{of}"] = self._schemas[of].read
                yield f"if {value}: {row}[{number}] = list(map(read_{of}, {value}))"
            elif kind.startswith("list["):
                yield f"if {value}: {row}[{number}] = rows = []"
                yield from self._schemas[kind[5:-1]]._rows(namespace, value)
            elif (of := kind.partition(_OPTIONAL)[0]) in self._schemas:
                namespace[f"read_{of}"] = partial(self._read_row, of)
                yield f"if {value} is not None: {row}[{number}] = read_{of}({value})"

    def _rows(self, namespace: dict[str, Any], rows: str) -> Iterator[str]:
        """Yield lines that read a message's rows in place, because usually there is just one."""
        yield f"for inner in {rows}:"
        yield from (f" {line}" for line in self._checks(namespace, "inner", "inner_"))
        yield f" rows.append(new({self._name}, inner))"

    def _read_row(self, name: str, row: Any) -> Any:
        """Read a row; its reader may not be compiled yet, if the row may hold another of itself."""
        return self._schemas[name].read(row)

    def _refuse_row(self) -> NoReturn:
        raise ProtocolError(f"{self._name}: not a list of {len(self.fields)} fields")

    def _refuse(self, number: int, value: Any) -> NoReturn:
        what = f"{self._name}: {self.fields[number]}"
        if type(value) not in _TYPES.get(self.kinds[number], (list,)):
            raise ProtocolError(f"{what} is of the wrong type")
        if type(value) is list and len(value) <= MAX_ROWS:
            raise ProtocolError(f"{what} is not a list of ids")
        if type(value) is dict:
            raise ProtocolError(f"{what} has something else than numbers and texts by name")
        has_length = type(value) is not int and self.kinds[number] != "Correlation"
        raise ProtocolError(f"{what} is {'too long or short' if has_length else 'out of range'}")
