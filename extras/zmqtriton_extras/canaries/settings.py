"""The settings of a canary, as ctl, HTTP and config.pbtxt give them: names, forms and limits.

A canary is a version of a model on trial next to the serving one. Every form becomes a
CanarySettings here, so that no form lacks a check.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from zmqtriton.sdk.models import Problem, parameter_text
from zmqtriton.sdk.wire import InvalidArgument

#: Begins the parameters of config.pbtxt.
PREFIX = "canary_"
#: Decisions about canaries lie there, in the state directory.
FOLDER = "canaries"
_NAMES = (
    "version",
    "weight",
    "header",
    "sticky",
    "shadow",
    "tolerance",
    "abort_failures",
    "abort_latency",
    "latency",
    "abort_hang",
    "abort_within",
    "min_requests",
    "promote_after",
)
PARAMETERS = tuple(f"{PREFIX}{name}" for name in _NAMES)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}")
_PERCENTILE = re.compile(r"p[1-9][0-9]?(\.[0-9]{1,3})?")
_MAX_VERSION = 2**63 - 1
_MAX_SECONDS = 365 * 86_400.0


class LatencyMeasure(NamedTuple):
    """The time of requests that is compared."""

    #: True to compare executions without the queue, False from arrival to response.
    is_compute: bool = True
    #: 0: the mean.
    percentile: float = 90.0

    def __str__(self) -> str:
        which = f"p{self.percentile:g}" if self.percentile else "mean"
        return f"{'compute' if self.is_compute else 'request'} {which}"


class CanarySettings(NamedTuple):
    """The version on trial, its share of the requests, and the conditions that end the trial."""

    version: int
    #: The percentage of requests without a version that it gets.
    weight: float = 0.0
    #: Requests with this header get it, too: a name in small letters, and a value or "" for any.
    header: tuple[str, str] = ("", "")
    #: The percentage of the others that it gets a copy of.
    shadow: float = 0.0
    #: Difference that numbers in the responses to a copied request may have.
    tolerance: float = 0.0
    #: Maximum percentage of failures beyond that of the stable version; above it the canary ends.
    abort_failures: float | None = 5.0
    #: Maximum ratio of its latency to that of the stable version; above it the canary ends.
    abort_latency: float | None = None
    #: Requests that it must have had before it is judged.
    min_requests: int = 50
    #: Seconds after which a canary that has not ended is promoted; None to wait for an operator.
    promote_after_s: float | None = None
    #: Requests with the same value of this header, or for "id" with the same id, get the same
    #: version. "": by chance.
    sticky: str = ""
    latency: LatencyMeasure = LatencyMeasure()
    #: Minimum seconds of an execution that hangs, and counts as failed; the canary ends if all its
    #: instances hang. None for no limit.
    abort_hang_s: float | None = 30.0
    #: Seconds for its executions to end after an abort; None for no limit.
    abort_within_s: float | None = 30.0

    def changed(self, values: Mapping[str, Any]) -> CanarySettings:
        """Return other settings of the same version. Raises InvalidArgument."""
        if "version" in values:
            raise InvalidArgument(
                "the version of a canary cannot be changed: abort it, and start another"
            )
        return self._replace(**_parse(values))

    def describe(self) -> str:
        """Return the canary's requests in words."""
        parts = [f"{self.weight:g} % of the requests"]
        if self.header[0]:
            parts.append(f"those with '{': '.join(filter(None, self.header))}'")
        if self.sticky:
            what = "id" if self.sticky == "id" else f"'{self.sticky}'"
            parts[0] += f", chosen by their {what}"
        if self.shadow:
            parts.append(f"copies of {self.shadow:g} %")
        return ", ".join(parts)


def parse_settings(values: Mapping[str, Any]) -> CanarySettings:
    """Parse the settings of a new canary, at least a version. Raises InvalidArgument."""
    fields = _parse(values)
    if "version" not in fields:
        raise InvalidArgument("a canary needs a 'version'")
    settings = CanarySettings(**fields)
    if not (settings.weight or settings.shadow or settings.header[0]):
        raise InvalidArgument(
            "a canary needs a 'weight', a 'header' or a 'shadow', or gets nothing"
        )
    return settings


def read(config: Any) -> CanarySettings | None:
    """Return the settings in a model's parameters; None if they name no version.

    Raises InvalidArgument.
    """
    values = {
        name.removeprefix(PREFIX): parameter_text(config, name)
        for name in PARAMETERS
        if parameter_text(config, name)
    }
    return parse_settings(values) if "version" in values else None


def problems(config: Any) -> Iterator[Problem]:
    """Return the faults of a model's parameters."""
    try:
        read(config)
    except InvalidArgument as error:
        named = next((n for n in PARAMETERS if f"'{n[7:]}'" in error.text), "canary_version")
        yield Problem(f"{named}: {error.text}", ("parameters", named))


def _parse(values: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in values.items():
        form = _FORMS.get(name)
        if form is None:
            names = ", ".join(sorted(_FORMS))
            raise InvalidArgument(f"a canary has no setting '{name}'; there are {names}")
        field, parse, what = form
        try:
            fields[field] = parse(value)
        except (ValueError, OverflowError):
            raise InvalidArgument(f"'{name}' of a canary must be {what}, not {value!r}") from None
    return fields


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError
    number = float(value)
    if not 0 <= number < math.inf:
        raise ValueError
    return number


def _percentage(value: Any) -> float:
    number = _number(value.removesuffix("%") if isinstance(value, str) else value)
    if number > 100:
        raise ValueError
    return number


def _factor(value: Any) -> float:
    number = _number(value.removesuffix("x") if isinstance(value, str) else value)
    if not number:
        raise ValueError
    return number


def _count(value: Any) -> int:
    number = _number(value)
    if number != int(number) or not 1 <= number <= _MAX_VERSION:
        raise ValueError
    return int(value)


def _seconds(value: Any) -> float:
    if not isinstance(value, str):
        return _number(value)
    unit = value[-1:] if value[-1:] in _SECONDS else ""
    return _number(value.removesuffix(unit)) * _SECONDS[unit]


def _header(value: Any) -> tuple[str, str]:
    if value == "off":
        return "", ""
    if not isinstance(value, str):
        raise ValueError
    name, _, content = value.partition(":")
    if not _HEADER_NAME.fullmatch(name) or len(content) > 1024 or not content.isprintable():
        raise ValueError
    return name.lower(), content.strip()


def _positive_seconds(value: Any) -> float:
    number = _seconds(value)
    if not 0 < number <= _MAX_SECONDS:
        raise ValueError
    return number


def _header_name(value: Any) -> str:
    if value == "off":
        return ""
    if not isinstance(value, str) or not _HEADER_NAME.fullmatch(value):
        raise ValueError
    return value.lower()


def _latency(value: Any) -> LatencyMeasure:
    if not isinstance(value, str) or not 1 <= len(value.split()) <= 2:
        raise ValueError
    measure = LatencyMeasure()
    for word in value.lower().split():
        if word in ("compute", "request"):
            measure = measure._replace(is_compute=word == "compute")
        elif word == "mean":
            measure = measure._replace(percentile=0.0)
        elif _PERCENTILE.fullmatch(word):
            measure = measure._replace(percentile=float(word[1:]))
        else:
            raise ValueError
    return measure


def _or_off(parse: Callable[[Any], float]) -> Callable[[Any], float | None]:
    return lambda value: None if value in (None, "off") else parse(value)


_PERCENTAGE = "a percentage from 0 to 100"
_FORMS: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "version": ("version", _count, "the number of a version"),
    "weight": ("weight", _percentage, _PERCENTAGE),
    "header": ("header", _header, "a header such as 'X-Canary: 1', or 'off'"),
    "sticky": ("sticky", _header_name, "the name of a header, 'id', or 'off'"),
    "shadow": ("shadow", _percentage, _PERCENTAGE),
    "tolerance": ("tolerance", _number, "a number from 0 on"),
    "abort_failures": ("abort_failures", _or_off(_percentage), f"{_PERCENTAGE}, or 'off'"),
    "abort_latency": ("abort_latency", _or_off(_factor), "a factor such as '2x', or 'off'"),
    "latency": (
        "latency",
        _latency,
        "a measure such as 'compute p90', 'request p99' or 'mean'",
    ),
    "abort_hang": ("abort_hang_s", _or_off(_positive_seconds), "a time such as '30s', or 'off'"),
    "abort_within": (
        "abort_within_s",
        _or_off(_positive_seconds),
        "a time such as '30s', or 'off'",
    ),
    "min_requests": ("min_requests", _count, "a number of requests"),
    "promote_after": (
        "promote_after_s",
        _or_off(_seconds),
        "a time such as '10m', '600s' or 600, or 'off'",
    ),
}
#: The names of all settings.
CANARY_SETTINGS = tuple(_FORMS)
#: Types of values that readers send to the supervisor.
TYPES = (CanarySettings, LatencyMeasure)


def again(model: str, version: int) -> str:
    """Say how to try an aborted version again."""
    return f"'zmqtriton-ctl canary start {model} {version}' tries it again"
