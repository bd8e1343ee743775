"""Finds errors in the rule of a model's configuration; some are found by `zmqtriton check` only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zmqtriton.sdk.models import Problem, Severity, parameter_text
from zmqtriton.sdk.wire import errors
from zmqtriton_extras.affinity.rule import (
    AFFINITY,
    BUSIER_BY,
    INPUT,
    MAX_BUSIER_BY,
    parse,
)

_FIELD = ("parameters", AFFINITY)


def affinity_problems(config: Any) -> Iterator[Problem]:
    """Yield the problems of a configuration that no server accepts."""
    if AFFINITY not in config.parameters:
        return
    text, limit = parameter_text(config, AFFINITY), parameter_text(config, BUSIER_BY)
    if parse(text) is None:
        forms = "header:NAME, parameter:NAME or input:NAME:BYTES"
        yield Problem(f"{AFFINITY} is '{text}', which is none of {forms}", _FIELD)
    elif config.HasField("sequence_batching"):
        yield Problem(
            f"{AFFINITY} is not for sequence_batching, which places requests itself: remove the "
            "parameter",
            _FIELD,
        )
    is_number = limit.isascii() and limit.isdigit() and len(limit) <= len(str(MAX_BUSIER_BY))
    if BUSIER_BY in config.parameters and not (is_number and 0 < int(limit) <= MAX_BUSIER_BY):
        text = f"{BUSIER_BY} is '{limit}', which is no whole number from 1 to {MAX_BUSIER_BY}"
        yield Problem(text, ("parameters", BUSIER_BY))


def affinity_warnings(config: Any) -> Iterator[Problem]:
    """Return warnings of rules that have no effect, as far as the configuration shows."""
    rule, names = parse(parameter_text(config, AFFINITY)), [one.name for one in config.input]
    if rule is not None and rule.source == INPUT and names and rule.name not in names:
        text = f"{AFFINITY} names the input '{rule.name}', which model {config.name} has not"
        meant = errors.closest_match(rule.name, names)
        yield Problem(text, _FIELD, severity=Severity.WARNING, suggestion=meant)
    if BUSIER_BY in config.parameters and AFFINITY not in config.parameters:
        text = f"{BUSIER_BY} means nothing without {AFFINITY}"
        yield Problem(text, ("parameters", BUSIER_BY), severity=Severity.WARNING)
