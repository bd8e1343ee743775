"""Parameters of a model that mean something to the server: their values, and names like theirs.

Called when a model is read and by checks of whole directories. All other parameters are the
model's own, so a name that is nearly one of ours can only be asked about.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator
from typing import Any

from zmqtriton.config.errors import ConfigError, Problem
from zmqtriton_floor.errors import Unsupported

#: Bounds a load, in seconds.
MAX_LOAD = "max_load_seconds"
#: Names the models that a model asks.
CALLEES = "BLS_MODELS"
CPU_ONLY = "FORCE_CPU_ONLY_INPUT_TENSORS"
KNOWN = (
    "EXECUTION_ENV_PATH",
    "PYTHON_EXECUTABLE",
    "PYTHON_REQUIREMENTS",
    "MAX_INFLIGHT",
    CPU_ONLY,
    CALLEES,
    MAX_LOAD,
)
#: These the broker reads, in any case.
KNOWN_IN_ANY_CASE = ("max_execution_seconds", "max_requests")
#: Two names of a model's own may be as alike as 0.8; one letter too few in ours is more than 0.9.
_LIKENESS = 0.87


def parameter_problems(config: Any) -> Iterator[Problem]:
    """Values that cannot be meant."""
    if CPU_ONLY in config.parameters:
        value = text_of(config, CPU_ONLY)
        if value not in ("yes", "no"):
            # The quotation mark is Triton's.
            text = f"Incorrect value for {CPU_ONLY}: {value}'"
            yield Problem(text, ("parameters", CPU_ONLY), number=Unsupported.number)


def load_within_s(config: Any) -> float:
    """How long a load may take; 0 is without end. Raises ConfigError."""
    if MAX_LOAD not in config.parameters:
        return 0.0
    value = text_of(config, MAX_LOAD)
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        text = f"{MAX_LOAD} is '{value}', which is no number of seconds"
        raise ConfigError(Problem(text, ("parameters", MAX_LOAD)))
    return seconds


def callees(config: Any) -> tuple[str, ...]:
    """The models that it says it asks, each once."""
    names = text_of(config, CALLEES).split(",")
    return tuple(dict.fromkeys(name.strip() for name in names if name.strip()))


def text_of(config: Any, name: str) -> str:
    """The value of a parameter, "" where it is missing; asking must not add it to the map."""
    return str(config.parameters[name].string_value) if name in config.parameters else ""


def likely_misspelt(config: Any) -> Iterator[Problem]:
    """Names that nobody knows and that are nearly ones which mean something."""
    upper = {name.upper(): name for name in (*KNOWN, *KNOWN_IN_ANY_CASE)}
    for name in sorted(config.parameters):
        if name in KNOWN or name.lower() in KNOWN_IN_ANY_CASE:
            continue
        found = difflib.get_close_matches(name.upper(), upper, n=1, cutoff=_LIKENESS)
        if found:
            text = f"the parameter '{name}' of model {config.name} means nothing to the server"
            yield Problem(text, ("parameters", name), upper[found[0]])
