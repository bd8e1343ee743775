"""The parameters that fit batches to a model: costs, likeness of requests, and the delay.

`BATCH_COST` and `BATCH_LIKE` name a measure of one input, such as `padded(tokens)`. With
`BATCH_DELAY: "auto"` the broker chooses the delay and the size of batches, for what `BATCH_TARGET`
says. The broker measures requests; this module reads the texts and checks them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from zmqtriton.config.errors import Problem, rule_problems
from zmqtriton.config.parameters import MAX_STREAMS, misplaced_problems, parameter_text
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
_MEASURE = re.compile(r"(\w+)\(([^()]+)\)")


class Measure(NamedTuple):
    """A measure of each request: a word of MEASURES, and the name of an input."""

    kind: str
    input: str


def measure_of(text: str) -> Measure | None:
    """Return the measure that a parameter names; None for a text of another form."""
    form = _MEASURE.fullmatch(text)
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
    text = parameter_text(config, name)
    measure, kinds = measure_of(text), MEASURES[name]
    if measure is None or measure.kind not in kinds:
        words = " or ".join(f"{kind}(INPUT)" for kind in kinds)
        yield Problem(f"{name} is '{text}', which is not {words}", ("parameters", name))
    yield from _unbatched_problems(config, name, has_streams=name == BATCH_COST)


def _unbatched_problems(config: Any, name: str, *, has_streams: bool) -> Iterator[Problem]:
    """Return the problems of a parameter of batches where requests do not wait for a batch."""
    unfit = {
        "sequence_batching, where sequences have places": config.HasField("sequence_batching"),
        "ensembles: set it for the models of their steps": config.HasField("ensemble_scheduling"),
        f"{MAX_STREAMS}, where requests join one by one": not has_streams
        and MAX_STREAMS in config.parameters,
    }
    yield from misplaced_problems(name, unfit)


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


BATCH_DELAY = "BATCH_DELAY"
BATCH_TARGET = "BATCH_TARGET"
AUTO = "auto"
#: Words for a target: the lowest mean time of a response, or the most rows in a second.
LATENCY, THROUGHPUT = "latency", "throughput"
#: The target without BATCH_TARGET.
USUAL = LATENCY
_PERCENTILE = re.compile(r"p(50|90|95|99)\s+(\d+(?:\.\d+)?)\s*(ms|s)")
_NS = {"ms": 1e6, "s": 1e9}


class BatchTarget(NamedTuple):
    """The aim of a choice of delay and size."""

    text: str
    #: The time within which a share of the responses must come; 0: no limit.
    limit_ns: int = 0
    #: The share of responses that may come later.
    late: float = 0.0


def target_of(text: str) -> BatchTarget | None:
    """Return the target that a text names; None for a text of another form."""
    if text in (LATENCY, THROUGHPUT):
        return BatchTarget(text)
    form = _PERCENTILE.fullmatch(text)
    if form is None or not float(form[2]):
        return None
    return BatchTarget(text, round(float(form[2]) * _NS[form[3]]), 1 - int(form[1]) / 100)


def delay_problems(config: Any) -> Iterator[Problem]:
    """Return the problems of the parameters, except those that a model may solve by completion."""
    delay, target = (parameter_text(config, name) for name in (BATCH_DELAY, BATCH_TARGET))
    yield from rule_problems(
        (
            BATCH_DELAY in config.parameters and delay != AUTO,
            f"{BATCH_DELAY} is '{delay}', which is not {AUTO}; a fixed delay is "
            "max_queue_delay_microseconds in dynamic_batching",
            ("parameters", BATCH_DELAY),
        ),
        (
            BATCH_TARGET in config.parameters and target_of(target) is None,
            f"{BATCH_TARGET} is '{target}', which is not {LATENCY}, {THROUGHPUT} or such as "
            "p99 200 ms",
            ("parameters", BATCH_TARGET),
        ),
        (
            BATCH_TARGET in config.parameters and not delay,
            f'{BATCH_TARGET} needs {BATCH_DELAY}: "{AUTO}": add it',
            ("parameters", BATCH_TARGET),
        ),
        (
            bool(delay) and config.dynamic_batching.max_queue_delay_microseconds > 0,
            f"{BATCH_DELAY} chooses the delay: remove it, or max_queue_delay_microseconds",
            ("parameters", BATCH_DELAY),
        ),
    )
    if delay:
        yield from _unbatched_problems(config, BATCH_DELAY, has_streams=False)


def complete_delay_problems(config: Any) -> Iterator[Problem]:
    """Return the problem of the parameters in a complete configuration."""
    yield from rule_problems(
        (
            BATCH_DELAY in config.parameters and not config.HasField("dynamic_batching"),
            f"{BATCH_DELAY} means nothing without dynamic_batching: add that, or remove it",
            ("parameters", BATCH_DELAY),
        ),
    )
