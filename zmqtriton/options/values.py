"""Parses the value of one command-line option, as Triton's parser does, and the values of traces.

Each reader takes the text after `=` and returns the typed value, or raises `BadValue` with Triton's
text. Knows no option by name and checks none against another. A value of a restriction names
categories of routes and RPCs.

--trace-config and the older --trace-* options are combined once the whole command line is read,
since a later setting may undo an earlier one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from zmqtriton import addons
from zmqtriton_floor.byte_sizes import parse_size
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.metrics import read_labels
from zmqtriton_floor.settings.broker import RateLimitResource as RateLimitResource
from zmqtriton_floor.settings.frontends import Restriction as Restriction
from zmqtriton_floor.settings.offers import Hook

First = TypeVar("First")
Second = TypeVar("Second")

_CORE_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
#: Number of cores that is more than the kernel can have.
_MAX_CORES = 1 << 13
_INT_LIMIT = 2**31
_LONG_LIMIT = 2**63
_NEGATIVE = "Must not be negative. Got {value}"
_LEADING_INT = re.compile(r"\s*([+-]?[0-9]+)")
_LEADING_FLOAT = re.compile(r"\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)")
CATEGORIES = (
    "health",
    "metadata",
    "inference",
    "shared-memory",
    "model-config",
    "model-repository",
    "statistics",
    "trace",
    "logging",
)
#: The options that restrict clients, by field, and what each calls a category.
RESTRICTING_OPTIONS = {
    "http_restricted_api": "api",
    "grpc_restricted_protocol": "protocol",
    **{s.restrictions: "verb" for s in addons.services().values() if s.restrictions},
}
#: A word that routes may have as their category for `--http-restricted-api`.
CATEGORY = Hook[str]("http.category")
#: Categories of HTTP, which alone has APIs of add-ons, steers models while they serve, and shows
#: people state and log.
HTTP_CATEGORIES = (
    *CATEGORIES,
    *CATEGORY.words_in(addons.offers()),
    "steering",
    "status",
    "logs",
)


class BadValue(Exception):
    """Raised if the text after an option cannot be its value; names the expected form."""


class OptionError(Exception):
    """Raised if the server cannot start with these options; the text is for stderr."""


class Setting(NamedTuple):
    """One `--backend-config=python,stub-timeout-seconds=60`; the name is empty for a global one."""

    name: str
    key: str
    value: str


class ModelFile(NamedTuple):
    """A Python file that is a model."""

    name: str
    path: str


def option_of(field: str) -> str:
    """Return the option of a field as users write it, such as `--http-port`."""
    return f"--{field.replace('_', '-')}"


def address(value: str) -> str:
    """Return an address without brackets, and without the prefixes that Triton's HTTP needs."""
    bare = value.removeprefix("ipv4:").removeprefix("ipv6:")
    return bare[1:-1] if bare.startswith("[") and bare.endswith("]") else bare


def non_empty_text(message: str) -> Callable[[str], str]:
    """Return a text that must not be empty."""

    def read(value: str) -> str:
        if not value:
            raise BadValue(message)
        return value

    return read


def boolean(value: str) -> bool:
    word = value.lower()
    if word not in ("true", "on", "1", "false", "off", "0"):
        raise BadValue(f"invalid value for bool option: {value}")
    return word in ("true", "on", "1")


def _leading_integer(value: str, limit: int) -> int:
    # as C's strtol reads it: what follows the digits is ignored, so `1=1` is 1
    match = _LEADING_INT.match(value)
    if match is None:
        raise BadValue(f"Invalid option value. Got {value}")
    # a number too long to convert is out of range anyway
    digits = match.group(1)
    number = int(digits) if len(digits) < 25 else limit
    if not -limit <= number < limit:
        raise BadValue(f"Provided option value is out of bound. Got {value}")
    return number


def integer(value: str) -> int:
    return _leading_integer(value, _INT_LIMIT)


def long_integer(value: str) -> int:
    return _leading_integer(value, _LONG_LIMIT)


def _size(value: str) -> int:
    """Return the bytes that a text such as 512M means."""
    if (number := parse_size(value)) is None:
        raise BadValue(f"It must be a number of bytes, such as 1048576, 512M or 70G. Got {value}")
    return number


def integer_or_bool(value: str) -> int:
    """Return a level, which words may switch on and off as well."""
    word = value.lower()
    if word in ("true", "false"):
        return int(word == "true")
    return integer(value)


def number(value: str) -> float:
    match = _LEADING_FLOAT.match(value)
    if match is None:
        raise BadValue(f"Invalid option value. Got {value}")
    if (result := float(match.group(1))) < 0:
        raise BadValue(_NEGATIVE.format(value=value))
    return result


def regular_expression(option: str) -> Callable[[str], str]:
    """Return a regular expression; (?-i) at its begin respects case."""

    def read(value: str) -> str:
        try:
            re.compile(value.removeprefix("(?-i)"))
        except re.error as error:
            raise BadValue(f"invalid argument for {option}. {error}: '{value}'") from None
        return value

    return read


def integer_between(
    minimum: int, maximum: int, message: str, number: Callable[[str], int] = integer
) -> Callable[[str], int]:
    def read(value: str) -> int:
        amount = number(value)
        if not minimum <= amount <= maximum:
            raise BadValue(message.format(value=value))
        return amount

    return read


port = integer_between(0, 65535, "Port must be in the range 0 to 65535. Got {value}")
count = integer_between(0, _INT_LIMIT - 1, _NEGATIVE)
memory = integer_between(0, _LONG_LIMIT - 1, "It is too large. Got {value}", _size)


def one_of(words: tuple[str, ...], message: str) -> Callable[[str], str]:
    """Make a reader of these words: it takes them in any case, and returns them as spelled here."""
    spelled = {word.lower(): word for word in words}

    def read(value: str) -> str:
        word = spelled.get(value.lower())
        if word is None:
            raise BadValue(f"{message}\nAny of: {', '.join(words)}.")
        return word

    return read


def pair(
    first: Callable[[str], First], second: Callable[[str], Second], sign: str
) -> Callable[[str], tuple[First, Second]]:
    def read(value: str) -> tuple[First, Second]:
        left, separator, right = value.partition(sign)
        if not separator:
            raise BadValue(
                "Cannot parse pair option due to incorrect number of inputs."
                f"--<pair option> argument requires format <first>{sign}<second>. Found: {value}"
            )
        return first(left), second(right)

    return read


gpu_memory = pair(count, memory, ":")


def model_file(value: str) -> ModelFile:
    """Read PATH or NAME=PATH."""
    name, equals, path = value.partition("=")
    if not equals or "/" in name:
        path = value
        name = os.path.splitext(os.path.basename(path))[0]
    if not name or not path.endswith(".py"):
        raise BadValue(f"--model-file must be a Python file, or NAME=FILE. Got {value}")
    return ModelFile(name, path)


def _split_setting(value: str) -> tuple[int, str, str, str] | None:
    """Split `name,key=value` into (position of the comma, name, key, value).

    None without key or value.
    """
    comma = value.find(",")
    equals = value.find("=", comma + 1)
    key, setting = value[comma + 1 : equals], value[equals + 1 :]
    if equals < 0 or not key or not setting:
        return None
    return comma, value[: max(comma, 0)], key, setting


def setting(option: str, what: str, *, may_be_global: bool) -> Callable[[str], Setting]:
    """Return `<name>,<setting>=<value>`.

    Without a name, where that is allowed, a global setting.
    """
    noun = what.removesuffix(" name")
    form = f"<{what}>,<setting>=<value>"
    missing = f"No {noun} specified. {option} option format is {form}"
    if may_be_global:
        missing += " or <setting>=<value>"

    def read(value: str) -> Setting:
        comma = value.find(",")
        if comma == 0 or (comma < 0 and not may_be_global):
            raise BadValue(f"{missing}. Got {value}")
        parts = _split_setting(value)
        if parts is None:
            raise BadValue(f"{option} option format is '{form}'. Got {value}")
        return Setting(*parts[1:])

    return read


def metrics_setting(value: str) -> Setting:
    key, _, text = value.partition("=")
    # A comma before the `=` would end a name, and no metric has settings of its own.
    if not key or not text or "," in key:
        raise BadValue(f"--metrics-config option format is <setting>=<value>. Got {value}")
    if key == "labels":
        try:
            read_labels(text)
        except InvalidArgument as error:
            raise BadValue(f"--metrics-config labels: {error.text}. Got {value}") from None
    return Setting("", key, text)


def host_policy(value: str) -> Setting:
    parts = _split_setting(value)
    if parts is None or parts[0] <= 0:
        raise BadValue(
            f"--host-policy option format is '<policy name>,<setting>=<value>'. Got {value}"
        )
    setting = Setting(*parts[1:])
    if setting.key == "cpu-cores":
        core_numbers(setting.value)
    elif setting.key == "numa-node" and integer(setting.value) < 0:
        raise BadValue(f"--host-policy numa-node must not be negative. Got {setting.value}")
    return (
        setting._replace(value=str(integer(setting.value)))
        if setting.key == "numa-node"
        else setting
    )


def core_numbers(value: str) -> set[int]:
    """Return the numbers of a list like `0-3,8`."""
    cores: set[int] = set()
    for part in value.split(","):
        match = _CORE_RANGE.fullmatch(part.strip())
        first = int(match[1]) if match else 0
        last = int(match[2] or first) if match else -1
        if not first <= last < _MAX_CORES:
            raise BadValue(f"invalid list of cores, expected one as 0-3,8. Got {value}")
        cores.update(range(first, last + 1))
    return cores


def restriction(
    option: str, kind: str, header_prefix: str, allowed: Sequence[str] = CATEGORIES
) -> Callable[[str], Restriction]:
    """Return `<api>,<api>:<key>=<value>`: those APIs need the header <key> with <value>."""

    def read(value: str) -> Restriction:
        names, _, rest = value.partition(":")
        key, _, expected = rest.partition("=")
        if not names or not key or not expected:
            raise BadValue(
                f"{option} option format is '<config name>:<setting>=<value>'. Got {value}"
            )
        categories = tuple(names.split(","))
        for category in categories:
            if category not in allowed:
                raise BadValue(f"unknown restricted {kind} '{category}'")
        return Restriction(categories, header_prefix + key, expected)

    return read


def resource(value: str) -> RateLimitResource:
    parts = value.split(":")
    if len(parts) not in (2, 3):
        raise BadValue(
            "--rate-limit-resource option format is '<resource_name>:<count>:<device>' or "
            f"'<resource_name>:<count>'. Got {value}"
        )
    device = integer(parts[2]) if len(parts) == 3 else -1
    return RateLimitResource(parts[0], integer(parts[1]), device)


OPENTELEMETRY = "opentelemetry"
_MODES = ("triton", OPENTELEMETRY)
_LEVELS = {
    **dict.fromkeys(("false", "off")),
    **dict.fromkeys(("true", "on", "min", "max", "timestamps"), "TIMESTAMPS"),
    "tensors": "TENSORS",
}

#: The numeric settings of the OpenTelemetry exporter, with their minimums. Variables may set them,
#: too, under these names in capitals with a prefix.
_EXPORTER_MINIMUMS = {
    "bsp_max_export_batch_size": 1,
    "bsp_schedule_delay": 0,
    "bsp_max_queue_size": 1,
}

#: The setting of --trace-config that replaces each deprecated option.
DEPRECATED_TRACE_OPTIONS = {
    "trace-file": Setting("triton", "file", "<filepath>"),
    "trace-level": Setting("", "level", "<OFF|TIMESTAMPS|TENSORS>"),
    "trace-rate": Setting("", "rate", "<rate value>"),
    "trace-count": Setting("", "count", "<count value>"),
    "trace-log-frequency": Setting("triton", "log-frequency", "<log frequency value>"),
}


@dataclass(frozen=True)
class TraceOptions:
    """The destination of traces and the choice of requests, until a client changes them."""

    mode: str = "triton"
    #: Levels, TIMESTAMPS and TENSORS, alone or together; empty is off.
    level: tuple[str, ...] = ()
    #: Rate of traces: one request in this many is traced.
    rate: int = 1000
    #: Number of further traces; -1: no limit.
    count: int = -1
    file: str = ""
    #: Number of traces in a file before the next one begins; 0 keeps one file.
    log_frequency: int = 0
    #: The settings of the OpenTelemetry exporter in order, as (key, value).
    opentelemetry: tuple[tuple[str, str], ...] = ()

    @property
    def can_trace(self) -> bool:
        """True if there is a destination: clients may turn traces on, but not give one."""
        return self.mode == OPENTELEMETRY or bool(self.file)


_read_setting = setting("--trace-config", "trace mode", may_be_global=True)


def trace_setting(value: str) -> Setting:
    """Read a --trace-config, and check the name of its mode."""
    setting = _read_setting(value)
    return setting._replace(name=_parse_mode(setting.name)) if setting.name else setting


def trace_options(settings: Iterable[Setting]) -> TraceOptions:
    """Return all settings together, later ones over earlier; OptionError names the setting."""
    options, levels = TraceOptions(), list[str | None]()
    for entry in settings:
        try:
            if (entry.name, entry.key) == ("", "level"):
                levels.append(_parse_level(entry.value))
            options = _apply_setting(options, entry)
        except BadValue as error:
            where = f"{entry.name},{entry.key}" if entry.name else entry.key
            raise OptionError(f'Bad option: "--trace-config {where}".\n{error}') from None
    # OFF wins wherever it stands, since levels otherwise add up
    names = dict.fromkeys(level for level in levels if level)
    return replace(options, level=() if None in levels else tuple(names))


def with_exporter_environment(
    options: TraceOptions, environment: Mapping[str, str]
) -> TraceOptions:
    """Add the numbers that only variables set, as Triton does.

    OptionError names the variable.
    """
    if options.mode != OPENTELEMETRY:
        return options
    pairs = list(options.opentelemetry)
    for key in _EXPORTER_MINIMUMS.keys() - dict(pairs).keys():
        name = f"OTEL_{key.upper()}"
        if environment.get(name):
            try:
                pairs.append((key, _exporter_value(key, environment[name])))
            except BadValue as error:
                raise OptionError(f'Bad option: "{name}".\n{error}') from None
    return replace(options, opentelemetry=tuple(pairs))


def _exporter_value(key: str, value: str) -> str:
    if key not in _EXPORTER_MINIMUMS:
        return value
    number, least = integer(value), _EXPORTER_MINIMUMS[key]
    if number < least:
        raise BadValue(f"Must not be below {least}. Got {value}")
    return str(number)


def _apply_setting(options: TraceOptions, setting: Setting) -> TraceOptions:
    if setting.name == OPENTELEMETRY:
        pair = setting.key, _exporter_value(setting.key, setting.value)
        return replace(options, opentelemetry=(*options.opentelemetry, pair))
    for name, key, field, read in _TRACE_FIELDS:
        if (name, key) == (setting.name, setting.key):
            return replace(options, **{field: read(setting.value)})
    return options


def _parse_mode(value: str) -> str:
    word = value.lower()
    if word not in _MODES:
        raise BadValue(
            f"invalid value for trace mode option: {word}. "
            'Available options are "triton" and "opentelemetry"'
        )
    return word


def _parse_level(value: str) -> str | None:
    """Return the level's name; None for off."""
    word = value.lower()
    if word not in _LEVELS:
        raise BadValue(f"invalid value for trace level option: {word}")
    return _LEVELS[word]


#: The other settings of traces: mode and key, the field of TraceOptions, and how a value is read.
_TRACE_FIELDS: tuple[tuple[str, str, str, Callable[[str], Any]], ...] = (
    ("triton", "file", "file", str),
    ("triton", "log-frequency", "log_frequency", integer),
    ("", "mode", "mode", _parse_mode),
    ("", "rate", "rate", integer),
    ("", "count", "count", integer),
)
