"""The parameters that fit batches to a model: what its requests cost, and which are alike.

`BATCH_COST` and `BATCH_LIKE` name a measure of one input, such as `padded(tokens)`. The broker
measures requests; this module reads the texts and checks them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from zmqtriton.config.errors import Problem, rule_problems
from zmqtriton.config.parameters import MAX_STREAMS, parameter_text
from zmqtriton_floor.datatypes import BY_NUMBER

#: Limits a batch by the cost of its requests, besides their rows.
BATCH_COST = "BATCH_COST"
#: The budget: the maximum cost of a batch.
MAX_BATCH_COST = "MAX_BATCH_COST"
#: Puts requests of like size into a batch.
BATCH_LIKE = "BATCH_LIKE"
MAX_COST = 10**12
#: The measures that each parameter takes.
MEASURES = {BATCH_COST: ("elements", "bytes", "value", "padded"), BATCH_LIKE: ("shape", "value")}
_FORM = re.compile(r"(\w+)\(([^()]+)\)")


class Measure(NamedTuple):
    """A measure of each request: a word of MEASURES, and the name of an input."""

    kind: str
    input: str


def measure_of(text: str) -> Measure | None:
    """Return the measure that a parameter names; None for a text of another form."""
    form = _FORM.fullmatch(text)
    return Measure(form[1], form[2].strip()) if form else None


def cost_problems(config: Any) -> Iterator[Problem]:
    """Return the problems of the parameters, except those that a model may solve by completion."""
    cost, budget = (parameter_text(config, name) for name in (BATCH_COST, MAX_BATCH_COST))
    is_number = budget.isascii() and budget.isdigit() and 1 <= int(budget) <= MAX_COST
    yield from rule_problems(
        (
            bool(budget) and not is_number,
            f"{MAX_BATCH_COST} is '{budget}', which is no whole number from 1 to {MAX_COST}",
            ("parameters", MAX_BATCH_COST),
        ),
        (
            bool(cost) and not budget,
            f"{BATCH_COST} needs {MAX_BATCH_COST}, the maximum cost of a batch: add it",
            ("parameters", BATCH_COST),
        ),
        (
            bool(budget) and not cost,
            f"{MAX_BATCH_COST} needs {BATCH_COST}, the cost of a request: add it",
            ("parameters", MAX_BATCH_COST),
        ),
    )
    for name in MEASURES:
        if name in config.parameters:
            yield from _measure_problems(config, name)


def _measure_problems(config: Any, name: str) -> Iterator[Problem]:
    text, field = parameter_text(config, name), ("parameters", name)
    measure, kinds = measure_of(text), MEASURES[name]
    words = " or ".join(f"{kind}(INPUT)" for kind in kinds)
    has_streams = name == BATCH_LIKE and MAX_STREAMS in config.parameters
    yield from rule_problems(
        (
            measure is None or measure.kind not in kinds,
            f"{name} is '{text}', which is not {words}",
            field,
        ),
        (
            config.HasField("sequence_batching"),
            f"remove {name}: it is not for sequence_batching, where sequences have places",
            field,
        ),
        (
            config.HasField("ensemble_scheduling"),
            f"remove {name}: it is not for ensembles; set it for the models of their steps",
            field,
        ),
        (
            has_streams,
            f"remove {name}: it is not for {MAX_STREAMS}, where requests join one by one",
            field,
        ),
    )


def measured_problems(config: Any) -> Iterator[Problem]:
    """Return the problems of the parameters in a complete configuration."""
    inputs = {one.name: BY_NUMBER.get(one.data_type) for one in config.input}
    for name in MEASURES:
        measure = measure_of(parameter_text(config, name))
        if measure is None:
            continue
        field, datatype = ("parameters", name), inputs.get(measure.input)
        yield from rule_problems(
            (
                measure.input not in inputs,
                f"{name} measures '{measure.input}', but the inputs are: {', '.join(inputs)}",
                field,
            ),
            (
                measure.kind == "value" and datatype is not None and not datatype.array_code,
                f"{name} is the value of '{measure.input}', which has no numbers to add",
                field,
            ),
            (
                not config.HasField("dynamic_batching"),
                f"{name} means nothing without dynamic_batching: add it, or remove {name}",
                field,
            ),
        )
