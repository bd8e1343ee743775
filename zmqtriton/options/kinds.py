"""The shape of a row in the table of options, and a constructor for each kind of value.

Used by the table alone. Knows how an option may be written, not which options there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from zmqtriton.options import values
from zmqtriton.options.trace import DEPRECATED
from zmqtriton.options.values import Setting
from zmqtriton_floor.restrictions import CATEGORIES


class Sense(Enum):
    """What becomes of an option whose value is not the default."""

    HONOURED = "honoured"
    #: Kept in Options for what is still to be built; a warning says so.
    PENDING = "accepted but has no effect yet"
    #: Tunes something that this server does not have; a warning says so.
    INERT = "accepted and ignored"


class Shape(Enum):
    """How often an option may stand, and with what."""

    ONCE = "the last one counts"
    MANY = "each adds one value"
    #: `--flag`, or `--flag=false`; never takes the next argument.
    SWITCH = "needs no value"


@dataclass(frozen=True)
class Option:
    name: str
    metavar: str
    read: Callable[[str], Any]
    help: str
    sense: Sense = Sense.HONOURED
    shape: Shape = Shape.ONCE
    #: The field of Options where the value goes; by default the name's own.
    field: str = ""
    #: Printed whenever the option is used.
    warning: str = ""
    #: Of one that is not honoured: what there is in its place.
    why: str = ""

    @property
    def target(self) -> str:
        return self.field or self.name.replace("-", "_")


def _kind(
    metavar: str, reader: Callable[[str], Any], shape: Shape = Shape.ONCE
) -> Callable[..., Option]:
    def option(
        name: str,
        help: str,
        sense: Sense = Sense.HONOURED,
        *,
        read: Callable[[str], Any] = reader,
        shape: Shape = shape,
        field: str = "",
        warning: str = "",
        why: str = "",
    ) -> Option:
        return Option(name, metavar, read, help, sense, shape, field, warning, why)

    return option


text = _kind("string", values.text)
texts = _kind("string", values.text, Shape.MANY)
boolean = _kind("boolean", values.boolean)
switch = _kind("boolean", values.boolean, Shape.SWITCH)
integer = _kind("integer", values.integer)
long_integer = _kind("integer", values.long_integer)
count = _kind("integer", values.count)
port = _kind("integer", values.port)
number = _kind("float", values.number)


def other(
    metavar: str, read: Callable[[str], Any], *, shape: Shape = Shape.MANY
) -> Callable[..., Option]:
    """A kind of value that one option alone has."""
    return _kind(metavar, read, shape)


def setting(
    name: str,
    noun: str,
    help: str,
    sense: Sense = Sense.HONOURED,
    *,
    may_be_global: bool,
) -> Option:
    read = values.setting(f"--{name}", noun, may_be_global=may_be_global)
    return Option(name, f"{noun},setting=value", read, help, sense, Shape.MANY)


def restriction(name: str, kind: str, header_prefix: str) -> Option:
    read = values.restriction(f"--{name}", kind, header_prefix)
    help = (
        f"These {kind}s, separated by commas, answer only to requests with this key and value. "
        "A value @FILE stands in that file; without a slash it is a credential of the service. "
        f"May be repeated. Any of: {', '.join(CATEGORIES)}."
    )
    return Option(name, f"{kind}s:key=value", read, help, shape=Shape.MANY)


def deprecated_trace(name: str) -> Option:
    """An option that --trace-config replaced; it becomes the setting that stands for it."""
    instead = DEPRECATED[name]
    prefix = f"{instead.name}," if instead.name else ""
    advice = f"'--trace-config {prefix}{instead.key}={instead.value}'"

    def read(value: str) -> Setting:
        return instead._replace(value=value)

    return Option(
        name,
        "value",
        read,
        f"Use {advice}.",
        shape=Shape.MANY,
        field="trace_deprecated",
        warning=(
            f"Warning: '--{name}' has been deprecated and will be removed in future releases. "
            f"Please use {advice} instead."
        ),
    )
