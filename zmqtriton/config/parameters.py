"""Names and values of model parameters that the server reads, quotas among them.

Quotas limit what the processes of one model may take from the others. All parameters are in
known_parameters.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from zmqtriton import addons
from zmqtriton.config import instances
from zmqtriton.config.errors import ConfigError, Problem
from zmqtriton_floor.byte_sizes import parse_size
from zmqtriton_floor.errors import Unsupported
from zmqtriton_floor.settings.offers import Hook
from zmqtriton_floor.signature import sees_own_gpu

#: Yields problems of a configuration that keep every server from serving the model.
PROBLEMS = Hook[Callable[[Any], Iterable[Problem]]]("models.problems")

#: Limits a load, in seconds.
MAX_LOAD_SECONDS = "max_load_seconds"
#: Names the models that a model calls.
BLS_MODELS = "BLS_MODELS"
#: Names a repository of a hub, or an artifact of a registry, whose files the model has, too.
MODEL_SOURCE = "MODEL_SOURCE"
#: Names the user that a model runs as.
STUB_USER = "stub_user"
FORCE_CPU_ONLY = "FORCE_CPU_ONLY_INPUT_TENSORS"
#: Lets a model's calls of other models continue when the clients that they are for have left.
DETACHED_CALLS = "DETACHED_CALLS"
#: Says whether each instance loads the model, or is a fork of a process that has loaded it.
INSTANCES = "INSTANCES"
#: Limits the requests of an instance of a decoupled model whose senders are open.
MAX_STREAMS = "MAX_STREAMS"
#: Has requests above max_batch_size executed in parts.
SPLIT_BATCHES = "SPLIT_BATCHES"
#: "instance": each instance sees its own GPU alone.
CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
#: Limits the shared memory for large tensors of all its instances together, in bytes.
MAX_SEGMENT_BYTES = "max_segment_bytes"
#: Limits the memory of each instance's processes, in bytes.
MAX_MEMORY_BYTES = "max_memory_bytes"
#: Sets a model's share of busy cores, relative to the other models.
CPU_WEIGHT = "cpu_weight"
#: Limits the executions of a model in a second; the broker counts them.
MAX_EXECUTIONS_PER_SECOND = "max_executions_per_second"
QUOTA_PARAMETERS = (MAX_SEGMENT_BYTES, MAX_MEMORY_BYTES, CPU_WEIGHT, MAX_EXECUTIONS_PER_SECOND)
#: Least limit that the broker does not take.
_BELOW = 1_000_000_000
#: Limits that the broker reads, in upper or lower case, with a description of their values.
_LIMITS = {
    "max_requests": f"whole number from 0 to {_BELOW - 1}",
    "max_execution_seconds": "number of seconds",
}
_STREAMS_LIMIT = 65_536
#: Weights of the kernel's control groups: the default and the maximum.
USUAL_CPU_WEIGHT, MAX_CPU_WEIGHT = 100, 10_000
MAX_EXECUTIONS = 1_000_000
#: Words that a parameter takes, and the error text for any other.
_CHOICES = {
    DETACHED_CALLS: (("yes", "no"), "which is neither yes nor no"),
    INSTANCES: (
        ("processes", *instances.INSTANCE_KINDS),
        "which is neither processes, forks nor threads",
    ),
}


def _problem(name: str, value: str, fault: str) -> Problem:
    """Return the problem of a parameter whose value makes no sense."""
    return Problem(f"{name} is '{value}', {fault}", ("parameters", name))


def parameter_problems(config: Any) -> Iterator[Problem]:
    """Return the problems of parameters whose values make no sense."""
    if FORCE_CPU_ONLY in config.parameters:
        value = parameter_text(config, FORCE_CPU_ONLY)
        if value not in ("yes", "no"):
            # the quotation mark is Triton's
            text = f"Incorrect value for {FORCE_CPU_ONLY}: {value}'"
            yield Problem(text, ("parameters", FORCE_CPU_ONLY), error_number=Unsupported.number)
    for name, (words, fault) in _CHOICES.items():
        value = parameter_text(config, name)
        if value not in ("", *words):
            yield _problem(name, value, fault)
    has_threads = parameter_text(config, INSTANCES) == instances.THREADS
    visible = parameter_text(config, CUDA_VISIBLE_DEVICES)
    if has_threads and sees_own_gpu(visible):
        yield Problem(
            f"{CUDA_VISIBLE_DEVICES} is '{visible}', and {INSTANCES} are threads, which share the "
            "variables of one process: choose processes or forks",
            ("parameters", CUDA_VISIBLE_DEVICES),
        )
    for problems in PROBLEMS.all_of(addons.offers()):
        yield from problems(config)
    if MAX_STREAMS in config.parameters:
        yield from _stream_problems(config)
    if SPLIT_BATCHES in config.parameters:
        yield from _split_problems(config)
    yield from _limit_problems(config)


def _split_problems(config: Any) -> Iterator[Problem]:
    value = parameter_text(config, SPLIT_BATCHES)
    if value not in ("true", "false"):
        yield _problem(SPLIT_BATCHES, value, "which is neither true nor false")
    is_ragged = any(one.allow_ragged_batch for one in config.input)
    is_decoupled = config.model_transaction_policy.decoupled
    unfit = {
        "decoupled models, whose responses have no order": is_decoupled,
        "sequence_batching, where a request is one step": config.HasField("sequence_batching"),
        "allow_ragged_batch, whose first axis is no batch": is_ragged,
        "ensembles: set it for the models of their steps": config.HasField("ensemble_scheduling"),
        f"inputs on a GPU ({FORCE_CPU_ONLY} is no)": parameter_text(config, FORCE_CPU_ONLY) == "no",
    }
    if value == "true":
        yield from misplaced_problems(SPLIT_BATCHES, unfit)


def misplaced_problems(name: str, unfit: Mapping[str, bool]) -> Iterator[Problem]:
    """Return the problems of a parameter that does not go with these parts of a configuration."""
    for what, is_so in unfit.items():
        if is_so:
            yield Problem(f"remove {name}: it is not for {what}", ("parameters", name))


def _stream_problems(config: Any) -> Iterator[Problem]:
    value = parameter_text(config, MAX_STREAMS)
    if fault := whole_number_problem(value, _STREAMS_LIMIT):
        yield _problem(MAX_STREAMS, value, fault)
    else:
        unfit = {
            "sequence_batching, where a slot has one request at a time": "sequence_batching",
            "ensembles: set it for the models of their steps": "ensemble_scheduling",
        }
        is_set = {what: config.HasField(section) for what, section in unfit.items()}
        yield from misplaced_problems(MAX_STREAMS, is_set)


def _limit_problems(config: Any) -> Iterator[Problem]:
    """Return the problems of limits that the broker could not use."""
    for name in config.parameters:
        must_be = _LIMITS.get(name.lower())
        if must_be is None:
            continue
        value = parameter_text(config, name)
        number = _number(value)
        is_whole = number == int(number) or not must_be.startswith("whole")
        if not (0 <= number < _BELOW and is_whole):
            yield _problem(name, value, f"which is no {must_be}")


def _number(text: str) -> float:
    """Return a number, -1 for a text that is not a finite one."""
    try:
        number = float(text)
    except ValueError:
        return -1.0
    return number if math.isfinite(number) else -1.0


def kind_of_instances(config: Any) -> str:
    """Return "forks" or "threads" if one process loads the model for all instances, else ""."""
    value = parameter_text(config, INSTANCES)
    return value if value in instances.INSTANCE_KINDS else ""


def load_timeout_s(config: Any) -> float:
    """Return the time limit of a load; 0: no limit. Raises ConfigError."""
    if MAX_LOAD_SECONDS not in config.parameters:
        return 0.0
    value = parameter_text(config, MAX_LOAD_SECONDS)
    seconds = _number(value)
    if seconds < 0:
        raise ConfigError(_problem(MAX_LOAD_SECONDS, value, "which is no number of seconds"))
    return seconds


def chosen_user(config: Any, allowed: Sequence[str]) -> str:
    """Return the user that the model runs as, by default the first; "" if none is allowed.

    Raises ConfigError.
    """
    name = parameter_text(config, STUB_USER)
    if not name:
        return allowed[0] if allowed else ""
    if name not in allowed:
        raise ConfigError(_problem(STUB_USER, name, "which --stub-user does not allow"))
    return name


def declared_callees(config: Any) -> tuple[str, ...]:
    """Return the models that the configuration declares as called, each once."""
    names = parameter_text(config, BLS_MODELS).split(",")
    return tuple(dict.fromkeys(name.strip() for name in names if name.strip()))


def parameter_text(config: Any, name: str) -> str:
    """Return the value of a parameter, or ""; reading it must not add it to the map."""
    return str(config.parameters[name].string_value) if name in config.parameters else ""


def whole_number_problem(value: str, maximum: int) -> str:
    """Return the fault of a parameter's whole number, which begins at 1; or ""."""
    is_number = value.isascii() and value.isdigit() and len(value) < 9
    is_valid = is_number and 1 <= int(value) <= maximum
    return "" if is_valid else f"which is no whole number from 1 to {maximum}"


def count_fault(value: str) -> str:
    """Return the fault of a parameter with a number of instances, or of cores; or ""."""
    return whole_number_problem(value, instances.MAX_INSTANCES)


class Quota(NamedTuple):
    """The limits of one model's processes; the default limits nothing."""

    model: str = ""
    #: Shared memory of all processes of the model together; 0: no limit.
    max_segment_bytes: int = 0
    #: Memory of each instance's processes; 0: no limit.
    max_memory_bytes: int = 0
    cpu_weight: int = USUAL_CPU_WEIGHT

    def of_segments(self) -> Quota:
        """Return the limit on shared memory alone."""
        return Quota(self.model, self.max_segment_bytes)


class QuotaUse(NamedTuple):
    """The use of one model's quota, and the number of times that the quota was too small."""

    segment_bytes: int = 0
    segment_refusals: int = 0
    #: Memory of the largest instance.
    memory_bytes: int = 0
    memory_excesses: int = 0


NO_QUOTA = Quota()


def quota_of(config: Any, usual: Quota) -> Quota:
    """Return the limits of a model; `usual` has the defaults, and all limits if one is invalid."""
    if any(quota_problems(config)):
        return usual
    segments = parse_size(parameter_text(config, MAX_SEGMENT_BYTES).strip())
    memory = parse_size(parameter_text(config, MAX_MEMORY_BYTES).strip())
    return Quota(
        config.name,
        usual.max_segment_bytes if segments is None else segments,
        usual.max_memory_bytes if memory is None else memory,
        int(parameter_text(config, CPU_WEIGHT) or usual.cpu_weight),
    )


def quota_problems(config: Any) -> Iterator[Problem]:
    """Return the problems of limits that make no sense."""
    for name in QUOTA_PARAMETERS:
        if name not in config.parameters:
            continue
        value = parameter_text(config, name)
        if config.HasField("ensemble_scheduling"):
            fault = "which means nothing to an ensemble: it has no processes, its members have"
        else:
            fault = _CHECKS[name](value)
        if fault:
            yield _problem(name, value, fault)


def _size_problem(value: str) -> str:
    is_size = parse_size(value.strip()) is not None
    return "" if is_size else "which is no number of bytes, such as 1048576, 512M or 2G"


def _rate_problem(value: str) -> str:
    number = _number(value)
    if number == 0 or 0.001 <= number <= MAX_EXECUTIONS:
        return ""
    return f"which is neither 0 nor a number from 0.001 to {MAX_EXECUTIONS}"


_CHECKS = {
    MAX_SEGMENT_BYTES: _size_problem,
    MAX_MEMORY_BYTES: _size_problem,
    CPU_WEIGHT: lambda value: whole_number_problem(value, MAX_CPU_WEIGHT),
    MAX_EXECUTIONS_PER_SECOND: _rate_problem,
}
