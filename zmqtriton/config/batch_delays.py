"""The parameters that let the broker choose the delay and the size of batches.

`BATCH_DELAY: "auto"` turns it on, and `BATCH_TARGET` says what for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from zmqtriton.config.errors import Problem, rule_problems
from zmqtriton.config.parameters import MAX_STREAMS, parameter_text

BATCH_DELAY = "BATCH_DELAY"
BATCH_TARGET = "BATCH_TARGET"
AUTO = "auto"
#: Words for a target: the lowest mean time of a response, or the most rows in a second.
LATENCY, THROUGHPUT = "latency", "throughput"
#: The target without BATCH_TARGET.
USUAL = LATENCY
_FORM = re.compile(r"p(50|90|95|99)\s+(\d+(?:\.\d+)?)\s*(ms|s)")
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
    form = _FORM.fullmatch(text)
    if form is None or not float(form[2]):
        return None
    return BatchTarget(text, round(float(form[2]) * _NS[form[3]]), 1 - int(form[1]) / 100)


def delay_problems(config: Any) -> Iterator[Problem]:
    """Return the problems of the parameters, except those that a model may solve by completion."""
    delay, target = (parameter_text(config, name) for name in (BATCH_DELAY, BATCH_TARGET))
    batching = config.dynamic_batching
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
            bool(delay) and batching.max_queue_delay_microseconds > 0,
            f"{BATCH_DELAY} chooses the delay: remove it, or max_queue_delay_microseconds",
            ("parameters", BATCH_DELAY),
        ),
        *(
            (
                bool(delay) and is_there,
                f"remove {BATCH_DELAY}: it is not for {what}",
                ("parameters", BATCH_DELAY),
            )
            for is_there, what in (
                (config.HasField("sequence_batching"), "sequence_batching"),
                (config.HasField("ensemble_scheduling"), "ensembles"),
                (
                    MAX_STREAMS in config.parameters,
                    f"{MAX_STREAMS}, where requests join one by one",
                ),
            )
        ),
    )


def complete_delay_problems(config: Any) -> Iterator[Problem]:
    """Return the problem of the parameters in a complete configuration."""
    yield from rule_problems(
        (
            BATCH_DELAY in config.parameters and not config.HasField("dynamic_batching"),
            f"{BATCH_DELAY} means nothing without dynamic_batching: add that, or remove it",
            ("parameters", BATCH_DELAY),
        ),
    )
