"""The parameter CORES of a model, and the option `--cores`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zmqtriton.sdk.models import Problem, count_fault, parameter_text
from zmqtriton.sdk.process import options

AUTO, ALL = "auto", "all"
CORES = "CORES"
#: Types of values that readers send to the supervisor.
TYPES = ()
#: The reader of `--cores`.
read_option = options.one_of((AUTO, "off"), "invalid argument for --cores")


def read(config: Any) -> int | None:
    """Return the cores of each instance: 0 is an even part, -1 is all; None without CORES."""
    text = parameter_text(config, CORES)
    if not text or any(problems(config)):
        return None
    return {AUTO: 0, ALL: -1}.get(text) if text in (AUTO, ALL) else int(text)


def problems(config: Any) -> Iterator[Problem]:
    text = parameter_text(config, CORES)
    why = "" if text in (AUTO, ALL) else count_fault(text)
    if why:
        yield Problem(f"{CORES} is '{text}', {why}, '{AUTO}' or '{ALL}'", ("parameters", CORES))
