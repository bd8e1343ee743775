"""The shape of a row in the table of options, and a constructor for each kind of value.

Used by the table only. Knows how an option may be written, not which options there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from zmqtriton.options import values


class OptionSupport(Enum):
    """The effect of an option whose value is not the default."""

    SUPPORTED = "honoured"
    #: Options for features that are still to be built; a warning says so.
    PLANNED = "accepted but has no effect yet"
    #: Options that tune something that this server does not have; a warning says so.
    IGNORED = "accepted and ignored"


class Arity(Enum):
    """The number of times that an option may be given, and whether it takes a value."""

    LAST_WINS = "the last one counts"
    REPEATABLE = "each adds one value"
    #: Flags: `--flag`, or `--flag=false`; they never take the next argument.
    SWITCH = "needs no value"


@dataclass(frozen=True)
class KnownOption:
    name: str
    metavar: str
    parse_value: Callable[[str], Any]
    help: str
    support: OptionSupport = OptionSupport.SUPPORTED
    arity: Arity = Arity.LAST_WINS
    #: The field of Options for the value; by default the option's name.
    field: str = ""
    #: Warning that is printed whenever the option is used.
    warning: str = ""
    #: Reason why an option is not honoured, for the warning about it.
    reason: str = ""

    @property
    def field_name(self) -> str:
        return self.field or self.name.replace("-", "_")


def _option_factory(
    metavar: str, reader: Callable[[str], Any], shape: Arity = Arity.LAST_WINS
) -> Callable[..., KnownOption]:
    def option(
        name: str,
        help: str,
        sense: OptionSupport = OptionSupport.SUPPORTED,
        *,
        read: Callable[[str], Any] = reader,
        shape: Arity = shape,
        field: str = "",
        warning: str = "",
        why: str = "",
    ) -> KnownOption:
        return KnownOption(name, metavar, read, help, sense, shape, field, warning, why)

    return option


text = _option_factory("string", values.text)
address = _option_factory("string", values.address)
texts = _option_factory("string", values.text, Arity.REPEATABLE)
boolean = _option_factory("boolean", values.boolean)
switch = _option_factory("boolean", values.boolean, Arity.SWITCH)
integer = _option_factory("integer", values.integer)
long_integer = _option_factory("integer", values.long_integer)
count = _option_factory("integer", values.count)
port = _option_factory("integer", values.port)
memory = _option_factory("size", values.memory)
number = _option_factory("float", values.number)


def custom(
    metavar: str, read: Callable[[str], Any], *, shape: Arity = Arity.REPEATABLE
) -> Callable[..., KnownOption]:
    """A kind of value for a single option."""
    return _option_factory(metavar, read, shape)


def setting_option(
    name: str,
    noun: str,
    help: str,
    sense: OptionSupport = OptionSupport.SUPPORTED,
    *,
    may_be_global: bool,
) -> KnownOption:
    read = values.setting(f"--{name}", noun, may_be_global=may_be_global)
    return KnownOption(name, f"{noun},setting=value", read, help, sense, Arity.REPEATABLE)


def restriction_option(
    name: str, kind: str, header_prefix: str, categories: Sequence[str] = values.CATEGORIES
) -> KnownOption:
    read = values.restriction(f"--{name}", kind, header_prefix, categories)
    help = (
        f"Require this key and value for these {kind}s, separated by commas. The value @FILE is "
        "read from a file; without a slash it names a systemd credential. May be repeated. "
        f"Names: {', '.join(categories)}."
    )
    return KnownOption(name, f"{kind}s:key=value", read, help, arity=Arity.REPEATABLE)


def deprecated_trace_option(name: str) -> KnownOption:
    """A deprecated option; it becomes the --trace-config setting that replaces it."""
    instead = values.DEPRECATED_TRACE_OPTIONS[name]
    prefix = f"{instead.name}," if instead.name else ""
    advice = f"'--trace-config {prefix}{instead.key}={instead.value}'"

    def read(value: str) -> values.Setting:
        return instead._replace(value=value)

    return KnownOption(
        name,
        "value",
        read,
        f"Use {advice}.",
        arity=Arity.REPEATABLE,
        field="trace_deprecated",
        warning=(
            f"Warning: '--{name}' has been deprecated and will be removed in future releases. "
            f"Please use {advice} instead."
        ),
    )
