"""The combined result of --trace-config and the older --trace-* options.

Computed once the whole command line is read, since a later setting may undo an earlier one. Starts
no trace, opens no file, and gets the environment from the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from zmqtriton.options.values import BadValue, Setting, integer, setting

OPENTELEMETRY = "opentelemetry"
_MODES = ("triton", OPENTELEMETRY)
_TIMESTAMP_LEVELS = ("true", "on", "min", "max", "timestamps")

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
    #: TIMESTAMPS and TENSORS may be combined; empty is off.
    level: tuple[str, ...] = ()
    #: One request in this many is traced.
    rate: int = 1000
    #: How many more traces; -1 is no limit.
    count: int = -1
    file: str = ""
    #: How many traces a file gets before the next one begins; 0 keeps one file.
    log_frequency: int = 0
    #: The settings of the OpenTelemetry exporter in order, as (key, value).
    opentelemetry: tuple[tuple[str, str], ...] = ()

    @property
    def can_trace(self) -> bool:
        """True if there is a destination: clients may turn traces on, but not give one."""
        return self.mode == OPENTELEMETRY or bool(self.file)


_read_setting = setting("--trace-config", "trace mode", may_be_global=True)


def trace_setting(value: str) -> Setting:
    """Return one --trace-config, with the mode's name checked."""
    setting = _read_setting(value)
    return setting._replace(name=_parse_mode(setting.name)) if setting.name else setting


def trace_options(settings: Iterable[Setting]) -> TraceOptions:
    """Return all settings together, later ones over earlier; BadValue's text names the setting."""
    options = TraceOptions()
    is_off = False
    for entry in settings:
        try:
            options = _apply_setting(options, entry)
        except BadValue as error:
            where = f"{entry.name},{entry.key}" if entry.name else entry.key
            raise BadValue(f'Bad option: "--trace-config {where}".\n{error}') from None
        is_off = is_off or (entry.key == "level" and _parse_level(entry.value) is None)
    # OFF wins wherever it stands, since levels otherwise add up
    return replace(options, level=()) if is_off else options


def with_exporter_environment(
    options: TraceOptions, environment: Mapping[str, str]
) -> TraceOptions:
    """Add the numbers that only variables set, as Triton does.

    BadValue's text names the variable.
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
                raise BadValue(f'Bad option: "{name}".\n{error}') from None
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
    if setting.name == "triton":
        if setting.key == "file":
            return replace(options, file=setting.value)
        if setting.key == "log-frequency":
            return replace(options, log_frequency=integer(setting.value))
        return options
    if setting.key == "mode":
        return replace(options, mode=_parse_mode(setting.value))
    if setting.key == "level":
        level = _parse_level(setting.value)
        if level is None or level in options.level:
            return options
        return replace(options, level=(*options.level, level))
    if setting.key == "rate":
        return replace(options, rate=integer(setting.value))
    if setting.key == "count":
        return replace(options, count=integer(setting.value))
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
    if word in ("false", "off"):
        return None
    if word in _TIMESTAMP_LEVELS:
        return "TIMESTAMPS"
    if word == "tensors":
        return "TENSORS"
    raise BadValue(f"invalid value for trace level option: {word}")
