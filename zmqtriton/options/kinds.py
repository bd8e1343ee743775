"""The shape of a row in the table of options, and a constructor for each kind of value.

Used by the table only. Knows how an option may be written, not which options there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from functools import partial
from typing import Any

from zmqtriton.options import values


class Arity(Enum):
    """The number of times that an option may be given, and whether it takes a value."""

    LAST_WINS = "the last one counts"
    REPEATABLE = "each adds one value"
    #: Flags: `--flag`, or `--flag=false`; they never take the next argument.
    SWITCH = "needs no value"


@dataclass(frozen=True)
class KnownOption:
    name: str
    help: str
    _: KW_ONLY
    metavar: str
    read: Callable[[str], Any]
    arity: Arity = Arity.LAST_WINS
    #: The field of Options for the value; by default the option's name.
    field: str = ""
    #: Warning that is printed whenever the option is used.
    warning: str = ""
    #: Reason why the option is accepted and ignored; "" for an option with an effect.
    reason: str = ""

    @property
    def field_name(self) -> str:
        return self.field or self.name.replace("-", "_")


def custom(
    metavar: str, read: Callable[[str], Any], arity: Arity = Arity.REPEATABLE
) -> partial[KnownOption]:
    """A kind of value, which options of it are made of."""
    return partial(KnownOption, metavar=metavar, read=read, arity=arity)


text = custom("string", str, Arity.LAST_WINS)
address = custom("string", values.address, Arity.LAST_WINS)
texts = custom("string", str)
boolean = custom("boolean", values.boolean, Arity.LAST_WINS)
switch = custom("boolean", values.boolean, Arity.SWITCH)
integer = custom("integer", values.integer, Arity.LAST_WINS)
long_integer = custom("integer", values.long_integer, Arity.LAST_WINS)
count = custom("integer", values.count, Arity.LAST_WINS)
port = custom("integer", values.port, Arity.LAST_WINS)
memory = custom("size", values.memory, Arity.LAST_WINS)
number = custom("float", values.number, Arity.LAST_WINS)


def setting_option(name: str, noun: str, help: str, *, may_be_global: bool) -> KnownOption:
    read = values.setting(f"--{name}", noun, may_be_global=may_be_global)
    return custom(f"{noun},setting=value", read)(name, help)


def restriction_option(
    name: str, kind: str, header_prefix: str, categories: Sequence[str] = values.CATEGORIES
) -> KnownOption:
    read = values.restriction(f"--{name}", kind, header_prefix, categories)
    help = (
        f"Require this key and value for these {kind}s, separated by commas. The value @FILE is "
        "read from a file; without a slash it names a systemd credential. May be repeated. "
        f"Names: {', '.join(categories)}."
    )
    return custom(f"{kind}s:key=value", read)(name, help)


def deprecated_trace_option(name: str) -> KnownOption:
    """A deprecated option; it becomes the --trace-config setting that replaces it."""
    instead = values.DEPRECATED_TRACE_OPTIONS[name]
    prefix = f"{instead.name}," if instead.name else ""
    advice = f"'--trace-config {prefix}{instead.key}={instead.value}'"

    return custom("value", lambda value: instead._replace(value=value))(
        name,
        f"Use {advice}.",
        field="trace_deprecated",
        warning=(
            f"Warning: '--{name}' has been deprecated and will be removed in future releases. "
            f"Please use {advice} instead."
        ),
    )
